"""Who may measure on a machine now.

On this machine a measurement is alone; exports and emulation may run beside each other. Every process of the
kit locks one file for that, and writes into it what it does. Another machine or a phone has one run at a
time. The kernel frees all of them however their holder ends. They are per user and on this machine: a run
that somebody starts from another machine is not noticed.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError
from model_profiling.core.files import LockFile
from model_profiling.core.stdio import current_progress
from model_profiling.runner.cache import state_root
from model_profiling.runner.machine import place_of

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
def _holding(what: str, *, alone: bool) -> Iterator[ProfilingError | None]:
    """Hold this machine; others who want it read that this process does `what` ("measures toy_cnn").
    If there can be no lock, the block gets the reason. Never nest: the inner one would wait for the outer
    one."""
    without: ProfilingError | None = None
    with contextlib.ExitStack() as until:
        try:
            announce = current_progress().stage if _waits.get() else None
            until.enter_context(_this_machine().held(what, shared=not alone, waiting=announce))
        except InUseError:
            raise
        except (InputError, SetupError) as problem:
            without = problem
        yield without


measuring_alone = partial(_holding, alone=True)
working_beside = partial(_holding, alone=False)


def holder() -> str | None:
    """Return who has this machine now, as `process 4711 measures toy_cnn`; of several, the last that came."""
    with contextlib.suppress(SetupError):
        return _this_machine().holder()
    return None


def _this_machine() -> LockFile:
    fix = "wait for it to end, or leave --no-wait out"
    return LockFile(_folder() / ".this-machine.lock", "this machine", fix, _ELSEWHERE)


def _folder() -> Path:
    return state_root() / "devices"


# Phones and machines behind ssh.


def lock_of(title: str, name: str) -> LockFile:
    """Return what allows one run at a time on the machine that the user calls `title`, and that calls itself
    `name`: two would disturb each other's times and power modes."""
    fix = "wait for it to end (two at once would disturb each other's times), or use another machine"
    return LockFile(_folder() / f".{place_of(name)}.lock", title, fix, _ELSEWHERE)
