"""The first process of a virtual phone, alone in its namespaces: mounts, adbd, and what a test does to them.

It obeys the lines on its standard input and answers each with one. When that input ends, however the test
process came to its end, it ends too, and the kernel takes every process and mount of the phone with it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from arm_programs import ENVIRONMENT, mount, run_arm_programs

_CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin") or "chroot"


class Phone:
    def __init__(self, plan: dict[str, str]) -> None:
        self.root = Path(plan["root"])
        self.plan = plan
        self.adbd: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        mount("-t", "proc", "proc", self.root / "proc")
        mount("--bind", self.root / "data/boot_id", self.root / "proc/sys/kernel/random/boot_id")
        mount("--bind", self.plan["runtime"], self.root / "apex")
        mount("-o", "remount,bind,ro", self.root / "apex")
        mount("-t", "tmpfs", "-o", "mode=755", "dev", self.root / "dev")
        for name in ("null", "zero", "random", "urandom", "tty"):
            (self.root / "dev" / name).touch()
            mount("--bind", f"/dev/{name}", self.root / "dev" / name)
        if qemu := self.plan.get("qemu"):
            run_arm_programs(qemu, self.root / "proc")

    def start(self) -> int:
        """Start adbd on a free port: what an earlier one has started may still hold that one's."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(8)
            port: int = listener.getsockname()[1]
            handed = listener.fileno()
            properties = f"service.adb.listen_addrs=acceptfd:{handed}\n{self.plan['properties']}"
            loader = f"/apex/{self.plan['loader']}"
            words = ["--library-path", "/apex", "--preload", "/apex/properties.so", "/apex/adbd"]
            who = f"{self.plan['uid']}:{self.plan['uid']}"
            # Root of a user namespace of its own has no groups that it could give up.
            change = [] if who == "0:0" else [f"--userspec={who}", "--groups="]
            argv = [_CHROOT, *change, str(self.root), loader, *words]
            env = {"PATH": "/system/bin", "HOME": "/", "TMPDIR": "/data/local/tmp"}
            env |= {"PHONE_PROPERTIES": properties, **(ENVIRONMENT if self.plan.get("qemu") else {})}
            with Path(self.plan["log"]).open("ab") as log:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                self.adbd = subprocess.Popen(argv, env=env, pass_fds=[handed], cwd="/", **streams)
        return port

    def obey(self, words: list[str]) -> object:
        match words:
            case ["boot"]:
                self.boot()
            case ["start"]:
                return self.start()
            case ["kill"]:
                if self.adbd:
                    self.adbd.kill()
                    self.adbd.wait()
                self.adbd = None
            case ["disk", size]:
                place = self.root / "data/local/tmp"
                who = self.plan["uid"]
                mount("-t", "tmpfs", "-o", f"size={size},mode=771,uid={who},gid={who}", "small", place)
            case ["processes"]:
                return self._processes()
            case _:
                raise ValueError(f"unknown command {words}")
        return None

    def _processes(self) -> list[str]:
        """What runs on the phone besides adbd, and is no part of this program."""
        own = {os.getpid(), self.adbd.pid if self.adbd else 0}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(folder.name) not in own and words != [b""]:
                found.append(b" ".join(words).decode(errors="replace").strip())
        return found


def main() -> None:
    mount("-t", "proc", "proc", "/proc")
    phone = Phone(json.loads(sys.argv[1]))
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = {"answer": phone.obey(words)}
        except subprocess.CalledProcessError as problem:
            answer = {"problem": f"{problem.cmd}: {problem.stderr.decode(errors='replace').strip()}"}
        except OSError as problem:
            answer = {"problem": str(problem)}
        print(json.dumps(answer), flush=True)
        if answer.get("problem"):
            return


main()
