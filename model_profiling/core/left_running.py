"""Finds and ends everything that a subprocess started, even when this process is killed.

A process group misses children that call `setsid`, so every launch has a mark in its environment, which all
its children inherit. On Linux this process also adopts, while something runs, what outlives its parent below
it: a child that drops its environment, session, group and parents all at once is found there, as long as this
process lives. macOS hides the environment of protected programs; there, groups and parents have to do.

A keeper, this file run as a script, is told what is launched and what has ended. When this process ends in
any way, the pipe between them closes, and the keeper ends what is left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

MARK = "SME2PROF_LAUNCH"
"""The environment variable with a launch's mark, preceded by the marks of the launches around it."""
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
# Between `fork` and `exec` a process still shows its parent's environment.
_UNTIL_EXEC_S = 0.1
_CLOCK_STEP_S = 0.02
"""The kernel tells the start of a process in hundredths of a second."""
_PR_SET_CHILD_SUBREAPER = 36


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    around = os.environ.get(MARK)
    return {**environment, MARK: f"{around}.{mark}" if around else mark}


def new_mark() -> str:
    """Begins with the nanoseconds since the machine started: what is older was not started under it."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic_ns()
    return f"{now:016x}{os.urandom(8).hex()}"


def _adopt_orphans(wanted: bool) -> None:
    """Become the parent of every process below this one whose own parent ends, where the system can; or
    not."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # no file can be opened; starting anything will say so
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def end_all(pid: int, mark: str) -> None:
    """Kill process `pid`, if it still runs, and everything started under `mark`; 0 means no process."""
    until = time.monotonic() + _PATIENCE_S
    killed: set[int] = set()
    while time.monotonic() < until and (found := _kill_started(pid, mark)):
        killed |= found
        time.sleep(_PAUSE_S)
    for each in killed - {pid}:  # `pid` has somebody who waits for it; those that were adopted have nobody
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(each, os.WNOHANG) == (0, 0) and time.monotonic() < until:
                time.sleep(_PAUSE_S)


def _kill_started(pid: int, mark: str) -> set[int]:
    """Return what there was to kill."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:  # during setup, before any package is installed: its group has to do
        if pid:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return set()

    def belongs(each: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if each.pid == os.getpid() or each.status() == psutil.STATUS_ZOMBIE:
                return False
            related = (each.pid, os.getpgid(each.pid), os.getsid(each.pid)) if pid else ()
            marks = each.environ().get(MARK)
            return pid in related or (is_adopted(each) if marks is None else mark in marks)
        return False

    def is_adopted(each: psutil.Process) -> bool:
        """What this process starts itself stays in its session or has a mark, but for the moment before
        `exec`, when it still has our command line. What is older is of somebody who uses the kit from
        Python."""
        other_session = each.ppid() == os.getpid() and os.getsid(each.pid) != os.getsid(0)
        younger = each.create_time() - psutil.boot_time() > int(mark[:16], 16) / 1e9 - _CLOCK_STEP_S
        return (
            sys.platform == "linux"
            and other_session
            and younger
            and each.cmdline() != psutil.Process().cmdline()
        )

    killed = set()
    with contextlib.suppress(OSError, IndexError):  # a container without /proc, or with an empty one
        for found in filter(belongs, psutil.process_iter()):
            children = []
            with contextlib.suppress(psutil.Error):
                children = found.children(recursive=True)
            for each in (*children, found):
                with contextlib.suppress(
                    psutil.Error
                ):  # it has gone, or belongs to another user, as with sudo
                    each.kill()
                    killed.add(each.pid)
    return killed


class Keeper:
    """Starts the keeper when there is first something to keep, and talks to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._let_go)

    def runs(self, mark: str, pid: int = 0) -> None:
        """Note that `pid` was started under `mark`, or, without a `pid`, is about to be."""
        with self._lock:
            if not self._running:
                _adopt_orphans(True)
            self._running[mark] = pid
            self._tell(f"{mark} {pid}\n")

    def ended(self, mark: str) -> None:
        with self._lock:
            if self._running.pop(mark, None) is not None:
                self._tell(f"{mark}\n")
            if not self._running:
                _adopt_orphans(False)

    def running(self) -> dict[str, int]:
        with self._lock:
            return dict(self._running)

    def _tell(self, line: str) -> None:
        """Tell the keeper, starting it if needed; if it cannot be started, go on without."""
        with contextlib.suppress(OSError):
            if self._process is None or self._process.poll() is not None:
                self._forget_process()
                script = str(Path(__file__).resolve())
                words = [sys.executable, "-I", "-S", script, *filter(None, sys.path)]
                self._process = subprocess.Popen(
                    words,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",  # the current folder may be deleted
                    env=marked(os.environ, "keeper"),
                    start_new_session=True,  # out of reach of the terminal's keys
                )
                line = "".join(f"{mark} {pid}\n" for mark, pid in self._running.items())
            if self._process.stdin is not None:
                self._process.stdin.write(line.encode())

    def _let_go(self) -> None:
        """At exit, end an idle keeper: in many containers nobody reaps orphans."""
        with self._lock:
            if self._process is not None and not self._running:
                self._process.kill()
                self._process.wait()

    def _forget_process(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def _forget(self) -> None:
        """After a fork: the child has started nothing, and must not hold the pipe open."""
        self._lock = threading.Lock()
        self._running.clear()
        self._forget_process()


def _keep() -> None:
    """Run as the keeper: record launches until standard input ends, then end those still running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    running: dict[str, int] = {}
    for line in sys.stdin:
        mark, *pid = line.split()
        if pid:
            running[mark] = int(pid[0])
        else:
            running.pop(mark, None)
    if 0 in running.values():
        time.sleep(_UNTIL_EXEC_S)
    sys.path[:] = sys.argv[1:]
    for mark, process_id in running.items():
        end_all(process_id, mark)


if __name__ == "__main__":
    _keep()
