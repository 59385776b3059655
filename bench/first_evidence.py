"""From clone to first evidence of SME2 on and off: how long, and where the time goes.

Clones this repository into an empty folder and does what a new user does, with empty caches: sets up, gets an
emulator that has SME2, exports a model, and runs it with SME2 on and off. Package downloads are included; the
packages of the operating system (Python, git, a compiler) are not. Ends with 1 when it takes more than three
minutes or the evidence is not there. The load is shown first: on a busy machine the time is not yours alone,
and the CPU time beside each part tells what is.

`--compiler debian` and `--compiler zig` hide the installed compilers, so that the kit fetches one: from the
distribution's packages, or (with the mirror out of reach) the one in the ziglang wheel. QEMU is then fetched
beforehand and not counted for `zig`, because it comes from the same mirror.

    python bench/first_evidence.py [--model toy_cnn] [--dtype fp16] [--limit 180] [--compiler debian]
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path

from model_profiling.core import process
from model_profiling.targets.emulated import fetch_qemu

COMPILERS = re.compile(r".*(?:g\+\+|c\+\+|gcc|cpp|clang|cc)(?:-\d+)?|(?:.*-)?(?:as|ld)(?:\.\w+)?")
NO_MIRROR = 'Acquire::http::Proxy "http://127.0.0.1:9"; Acquire::https::Proxy "http://127.0.0.1:9";\n'
ROOT = Path(__file__).resolve().parents[1]
FETCH = "from model_profiling.targets.emulated import EmulatedTarget; EmulatedTarget().prepare()"


def sme2_calls(kernels: Path) -> int:
    """Executed calls of SME2 kernels in a kernel table."""
    with kernels.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["evidence"] == "executed"]
    return sum(int(row["count"]) for row in rows if "_sme2_" in f"{row['kernel_name']}_")


def without_compilers(folder: Path) -> str:
    """A PATH with every program of this one's but those that compile, assemble or link."""
    programs = folder / "programs"
    programs.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = programs / program.name
            if not COMPILERS.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    return str(programs)


def hide_compilers(folder: Path, only: str) -> dict[str, str]:
    """What to set so that the kit has to fetch a compiler, and from where."""
    env = {"PATH": without_compilers(folder), "CXX": ""}
    if only == "zig":
        unreachable = folder / "apt.conf"
        unreachable.write_text(NO_MIRROR, encoding="utf-8")
        env |= {"SME2PROF_QEMU": str(fetch_qemu()), "APT_CONFIG": str(unreachable)}
    return env


def cpu_seconds() -> float:
    """What everything that was started and has ended has computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="toy_cnn")
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds")
    parser.add_argument("--compiler", choices=("installed", "debian", "zig"), default="installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-evidence-") as folder:
        clone = Path(folder) / "kit"
        env = {"SME2PROF_CACHE": f"{folder}/cache", "PIP_NO_CACHE_DIR": "1", "SME2PROF_QEMU": ""}
        if options.compiler != "installed":
            os.environ["SME2PROF_CACHE"] = env["SME2PROF_CACHE"]
            env |= hide_compilers(Path(folder), options.compiler)
        python, out = clone / ".venv/bin/python", clone / "out"
        kit = (python, "-m", "model_profiling")
        pte = out / "artifacts" / f"{options.model}_xnnpack_{options.dtype}.pte"
        steps = {
            "clone": ["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone],
            "set up (venv, packages, runner)": ["bash", clone / "model_profiling/scripts/setup_repo.sh"],
            "emulator": [python, "-c", FETCH],
            "export": [*kit, "export", options.model, "--dtype", options.dtype, "--outdir", pte.parent],
            "SME2 on and off": [
                *(*kit, "profile", pte, "--target", "emulated", "--outdir", out),
            ],
        }
        total = 0.0
        print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for name, command in steps.items():
            began, computed = time.monotonic(), cpu_seconds()
            done = process.run(command, timeout=1800, cwd=clone if clone.exists() else None, env=env)
            seconds = time.monotonic() - began
            total += seconds
            print(f"{name:34} {seconds:7.1f} s {cpu_seconds() - computed:7.1f} s of CPU", flush=True)
            if not done.ok:
                print(f"this step failed:\n{done.tail(20)}", file=sys.stderr)
                return 1
        print(f"{'from clone to evidence':34} {total:7.1f} s   (at most {options.limit:.0f} s)")
        tables = sorted((out / "runs").rglob("*_kernels.csv"))
        calls = {table.parent.name: sme2_calls(table) for table in tables}
        print(
            "executed calls of SME2 kernels:", ", ".join(f"{name} {count}" for name, count in calls.items())
        )
        proven = any(calls.values()) and not all(calls.values())
        return 0 if proven and total <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
