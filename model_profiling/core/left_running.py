"""Finds and ends everything that a subprocess started, even when this process is killed.

A process group misses children that call `setsid`, so every launch has a mark in its environment, which all
its children inherit. macOS hides the environment of protected programs; there, groups and parents have to do.

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


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    around = os.environ.get(MARK)
    return {**environment, MARK: f"{around}.{mark}" if around else mark}


def end_all(pid: int, mark: str) -> None:
    """Kill process `pid`, if it still runs, and everything started under `mark`; 0 means no process."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and _kill_started(pid, mark):
        time.sleep(_PAUSE_S)


def _kill_started(pid: int, mark: str) -> bool:
    """Return whether there was anything to kill."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:  # during setup, before any package is installed: its group has to do
        if pid:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return False

    def belongs(one: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if one.pid == os.getpid() or one.status() == psutil.STATUS_ZOMBIE:
                return False
            related = (one.pid, os.getpgid(one.pid), os.getsid(one.pid)) if pid else ()
            return pid in related or mark in one.environ().get(MARK, "")
        return False

    killed = False
    with contextlib.suppress(OSError, IndexError):  # a container without /proc, or with an empty one
        for parent in filter(belongs, psutil.process_iter()):
            children = []
            with contextlib.suppress(psutil.Error):
                children = parent.children(recursive=True)
            for one in (*children, parent):
                # It may have gone, or belong to another user, as with sudo.
                with contextlib.suppress(psutil.Error):
                    one.kill()
                    killed = True
    return killed


class Keeper:
    """Starts the keeper when there is first something to keep, and talks to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self._let_go)

    def note(self, mark: str, pid: int | None) -> None:
        """Note that `pid` was started under `mark` (0: is about to be), or that it has ended (None). The keeper
        is started if needed; if it cannot be, go on without."""
        with self._lock, contextlib.suppress(OSError):
            line = f"{mark}\n" if pid is None else f"{mark} {pid}\n"
            if pid is not None:
                self._running[mark] = pid
            elif self._running.pop(mark, None) is None:
                return
            if self._process is None or self._process.poll() is not None:
                if self._process is not None and self._process.stdin is not None:
                    self._process.stdin.close()
                script = str(Path(__file__).resolve())
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", script, *filter(None, sys.path)],
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
                self._process.communicate()


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
