"""Who may measure on a machine now.

On this machine a measurement is alone; exports and emulation may run beside each other. Every process of the
kit locks one file for that, and writes into it what it does. Another machine or a phone has one run at a
time. The kernel frees all of them however their holder ends. They are per
user and on this machine: a run that somebody starts from another machine is not noticed.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError, system_reason
from model_profiling.core.files import LockFile
from model_profiling.core.formatting import in_short, printable
from model_profiling.runner.cache import state_root
from model_profiling.runner.machine import place_of

_POLL_S = 0.05
_TRIES_UNTOLD, _TRIES_BETWEEN = 4, 20
_LONGEST_NAME = 160
_ELSEWHERE = "set XDG_STATE_HOME to a folder of yours that can be written to, on a file system with locks"
_waits: contextvars.ContextVar[bool] = contextvars.ContextVar("waits", default=True)


@contextlib.contextmanager
def may_wait(allowed: bool) -> Iterator[None]:
    """During the block, raise InUseError in place of waiting, unless it is `allowed`."""
    before = _waits.set(allowed)
    try:
        yield
    finally:
        _waits.reset(before)


@contextlib.contextmanager
def _holding(
    what: str, *, alone: bool, waiting: Callable[[str], object] | None = None
) -> Iterator[ProfilingError | None]:
    """Hold this machine; others who want it read that this process does `what` ("measures toy_cnn").
    `waiting` is told for whom this one waits. If there can be no lock, the block gets the reason. Never nest:
    the inner one would wait for the outer one."""
    without: ProfilingError | None = None
    with contextlib.ExitStack() as until:
        try:
            handle = _opened(until)
            _take(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, waiting)
            with contextlib.suppress(OSError):  # a full disk: only messages depend on the name
                os.ftruncate(handle, 0)
                os.pwrite(handle, files.encoded(f"process {os.getpid()} {what}"), 0)
        except InUseError:
            raise
        except (InputError, SetupError) as problem:
            without = problem
        yield without


measuring_alone = partial(_holding, alone=True)
working_beside = partial(_holding, alone=False)


def holder() -> str | None:
    """Return who has this machine now, as `process 4711 measures toy_cnn`; of several, the last that came."""
    with contextlib.suppress(ProfilingError, OSError), contextlib.ExitStack() as until:
        handle = _opened(until)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _name(handle)
    return None


def _folder() -> Path:
    return state_root() / "devices"


def _opened(until: contextlib.ExitStack) -> int:
    path = _folder() / ".this-machine.lock"
    try:
        files.make_folder(path.parent)
        handle = files.open_in_place(path)
    except InputError as problem:
        raise InputError(problem.problem, _ELSEWHERE) from problem
    except OSError as problem:
        raise InputError(f"cannot write {path}: {system_reason(problem)}", _ELSEWHERE) from problem
    until.callback(os.close, handle)
    return handle


def _take(handle: int, how: int, waiting: Callable[[str], object] | None) -> None:
    announced: set[str] = set()
    for tries in itertools.count():
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_POLL_S)
        except OSError as problem:
            raise SetupError(
                f"cannot lock a file in {_folder()}: {system_reason(problem)}", _ELSEWHERE
            ) from problem
        if tries % _TRIES_BETWEEN != _TRIES_UNTOLD:
            continue
        name = _name(handle)
        if not _waits.get():
            raise InUseError(f"this machine is in use: {name}", "wait for it to end, or leave --no-wait out")
        if waiting is not None and name not in announced:
            announced.add(name)
            waiting(f"waiting: {name}")


def _name(handle: int) -> str:
    text = os.pread(handle, 1 << 16, 0).decode(errors="replace")
    return printable(in_short(text))[:_LONGEST_NAME] or "another process of the kit is working"


# Phones and machines behind ssh.


def lock_of(title: str, name: str) -> LockFile:
    """Return what allows one run at a time on the machine that the user calls `title`, and that calls itself
    `name`: two would disturb each other's times and power modes."""
    fix = "wait for it to end (two at once would disturb each other's times), or use another machine"
    return LockFile(_folder() / f".{place_of(name)}.lock", title, fix, _ELSEWHERE)


def is_held(lock: LockFile) -> bool:
    try:
        lock.check_free()
    except InputError:
        return True
    return False
