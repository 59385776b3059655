"""A machine of another kind that runs aarch64 programs, under QEMU: for the first process of a user namespace
with mounts of its own, where nobody else sees a change. As a program: `arm_programs.py QEMU COMMAND...`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = {"QEMU_CPU": "max"}
"""What the emulated programs must be started with to have SME2."""
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
# An ELF file (executable or shared) for aarch64, as in QEMU's scripts/qemu-binfmt-conf.sh.
_AARCH64 = (
    r"M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
)
# QEMU shows this to the programs that it runs, but not to a `cat` of the machine's own.
_CPU = Path(__file__).with_name("data") / "emulated_cpuinfo.txt"


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


def run_arm_programs(qemu: str, proc: Path = Path("/proc")) -> None:
    """From now on the kernel starts `qemu` for every aarch64 program of this user namespace and those within,
    and the files in `proc` tell of its CPU. (On aarch64 it would catch every program.)"""
    mount("--bind", _CPU, proc / "cpuinfo")
    # An instance of this user namespace alone, gone when that is (Linux 6.7 and newer).
    mount("-t", "binfmt_misc", "binfmt_misc", _BINFMT)
    (_BINFMT / "register").write_bytes(f":sme2prof-tests:{_AARCH64}:{qemu}:F".encode())


if __name__ == "__main__":
    try:
        run_arm_programs(sys.argv[1])
    except subprocess.CalledProcessError as problem:
        sys.exit(f"{problem.cmd}: {problem.stderr.decode(errors='replace').strip()}")
    os.execvp(sys.argv[2], sys.argv[2:])
