"""Subprocesses end with this process, also where it is killed and cannot say so.

A keeper knows what runs: `left_running.py`, run once beside this process. It sleeps until the pipe between
them ends, as it does with whatever end of this process, and then ends what stands in the table they share: so
it is never awake while something is measured.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from model_profiling.core import left_running

MARK = "SME2PROF_LAUNCH"
"""The variable that holds the mark of a launch, behind those of the launches it is part of."""


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """`environment` for a launch under `mark`."""
    around = os.environ.get(MARK)
    return {**environment, MARK: f"{around}.{mark}" if around else mark}


def new_mark() -> str:
    return secrets.token_hex(8)


class Keeper:
    """This side of the keeper, which is started when it first has something to keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, tuple[int, int]] = {}
        self._pid = 0
        self._files: tuple[int, ...] = ()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._let_go)

    def begins(self, mark: str) -> None:
        """Something is about to be started under `mark`."""
        self.runs(mark, 0, 0)

    def runs(self, mark: str, pid: int, began: int) -> None:
        with self._lock:
            self._running[mark] = pid, began
            self._write()

    def ended(self, mark: str) -> None:
        with self._lock:
            self._running.pop(mark, None)
            self._write()

    def running(self) -> dict[str, tuple[int, int]]:
        """What runs now: the number and the start of each process, by its mark."""
        with self._lock:
            return dict(self._running)

    def _write(self) -> None:
        if not self._lives() and self._running:
            self._start()
        if self._files:
            rows = [f"{mark} {pid} {began}\n" for mark, (pid, began) in self._running.items()]
            # In one piece: whoever dies in the middle of it leaves the table as it was, or as it is to be.
            with contextlib.suppress(OSError):
                os.pwrite(self._files[1], "".join([*rows, left_running.LAST, "\n"]).encode(), 0)

    def _lives(self) -> bool:
        try:
            return bool(self._pid) and os.waitpid(self._pid, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def _start(self) -> None:
        """Start a keeper; where none can be had, there is none."""
        self._forget_files()
        script = str(Path(left_running.__file__).absolute())
        reading = -1
        try:
            reading, writing = map(_beyond_standard, os.pipe())
            self._files = (writing,)
            self._files = (writing, table := _beyond_standard(_unnamed_file()))
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", script],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_DUP2, table, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                # Out of reach of the terminal's keys from the first moment.
                setpgroup=0,
            )
        except (OSError, TypeError, ValueError):
            self._forget_files()
        finally:
            if reading >= 0:
                os.close(reading)

    def _let_go(self) -> None:
        """At the end of this process: a keeper that has nothing to keep goes first, so that it neither holds
        open what it inherited nor is left to somebody who does not wait for it, as in many containers."""
        with self._lock:
            if self._lives() and not self._running:
                with contextlib.suppress(OSError):
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)
                self._forget_files()

    def _forget_files(self) -> None:
        self._pid = 0
        for file in self._files:
            os.close(file)
        self._files = ()

    def _forget(self) -> None:
        """A fork of this process has started nothing, and must not hold the pipe open."""
        self._lock = threading.Lock()
        self._running.clear()
        self._forget_files()


def _beyond_standard(file: int) -> int:
    """`file` under a number that is no standard stream's, should one of those be closed."""
    if file > 2:
        return file
    moved: int = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(file)
    return moved


def _unnamed_file() -> int:
    """A file that nobody else can open and no full disk can hinder, where the system has such."""
    with contextlib.suppress(AttributeError, OSError):  # a sandbox may refuse it
        return os.memfd_create("sme2prof")
    file, name = tempfile.mkstemp()
    Path(name).unlink()
    return file
