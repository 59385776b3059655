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

# Somebody may only look who is there.
_LOOK_S = 0.2
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
        return None if _at_once(handle, fcntl.LOCK_EX) else _name(handle)
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
    try:
        for pause in (_LOOK_S, 0.0):
            if _at_once(handle, how):
                return
            time.sleep(pause)
        if not _waits.get():
            cure = "wait for it to end, or leave --no-wait out"
            raise InUseError(f"this machine is in use: {_name(handle)}", cure)
        if waiting is not None:
            waiting(f"waiting: {_name(handle)}")
        fcntl.flock(handle, how)
    except OSError as problem:
        raise SetupError(
            f"cannot lock a file in {_folder()}: {system_reason(problem)}", _ELSEWHERE
        ) from problem


def _at_once(handle: int, how: int) -> bool:
    """Take the lock if nobody has to be waited for."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
