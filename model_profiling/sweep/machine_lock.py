"""Locks for one measurement at a time on a machine, with nothing beside it on its CPUs.

A measurement has the machine alone; exports and emulation may run beside each other, and beside a measurement
that is pinned to CPUs they keep off. Every process of the kit's workers uses these locks, whichever sweep it
works for. The kernel frees them however their holder ends. They are per user.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import itertools
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError, system_reason
from model_profiling.runner.cache import state_root

_POLL_S = 0.02
_TRIES_UNTOLD = 10
"""Two that pass the door at the same moment do not wait for each other."""
_MOST_CPUS = 1 << 16
_MEASURING = _MOST_CPUS
"""The byte of the lock file for the whole machine; each lower byte is for one CPU."""
Told = Callable[[], object]


@contextlib.contextmanager
def measuring_alone(cpus: Iterable[int] = (), *, waiting: Told | None = None) -> Iterator[None]:
    """Measure on `cpus`, or on all, alone on the machine. `waiting` is called once if there is a wait."""
    with _locked(exclusive=True, cpus=cpus, waiting=waiting):
        yield


@contextlib.contextmanager
def working_beside(*, waiting: Told | None = None) -> Iterator[None]:
    """Work while nobody measures on this thread's CPUs. Never nest: a waiting measurement lets nobody in."""
    with _locked(exclusive=False, cpus=allowed_cpus(), waiting=waiting):
        yield


def allowed_cpus() -> frozenset[int]:
    """CPUs that this thread may run on; empty, which means all, where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def keep_off(cores: Iterable[int]) -> None:
    """Keep this thread, and what it starts, off the cores for measuring; without others, it takes turns."""
    if sys.platform != "linux":
        return
    others = allowed_cpus() - frozenset(cores)
    if others:
        os.sched_setaffinity(0, others)


@contextlib.contextmanager
def _locked(*, exclusive: bool, cpus: Iterable[int], waiting: Told | None) -> Iterator[None]:
    tell = functools.cache(waiting or (lambda: None))  # once
    with contextlib.ExitStack() as held:
        handle = _opened(held, ".this-machine.lock")
        with contextlib.ExitStack() as door:
            # Whoever waits for the lock keeps the door shut: new work cannot delay a measurement forever.
            _take(_opened(door, ".this-machine-door.lock"), 0, 1, exclusive=True, tell=tell)
            if exclusive:
                _take(handle, _MEASURING, 1, exclusive=True, tell=tell)
            for start, length in _ranges(cpus):
                _take(handle, start, length, exclusive=exclusive, tell=tell)
        yield


def _opened(until: contextlib.ExitStack, name: str) -> int:
    path = state_root() / "devices" / name
    elsewhere = "set XDG_STATE_HOME to a folder where you can write"
    try:
        files.make_folder(path.parent)
        handle = files.open_in_place(path)
    except InputError as problem:
        raise InputError(problem.problem, elsewhere) from problem
    except OSError as problem:
        raise InputError(f"cannot write {path}: {system_reason(problem)}", elsewhere) from problem
    until.callback(os.close, handle)
    return handle


def _ranges(cpus: Iterable[int]) -> Iterator[tuple[int, int]]:
    wanted = sorted(set(cpus))
    if not wanted:
        yield 0, _MOST_CPUS
        return
    start = last = wanted[0]
    for cpu in wanted[1:]:
        if cpu != last + 1:
            yield start, last + 1 - start
            start = cpu
        last = cpu
    yield start, last + 1 - start


def _take(handle: int, start: int, length: int, *, exclusive: bool, tell: Told) -> None:
    for tries in itertools.count():
        try:
            _try(handle, start, length, exclusive=exclusive)
            return
        except BlockingIOError:
            if tries >= _TRIES_UNTOLD:
                tell()
        except OSError as problem:
            raise SetupError(
                f"cannot lock a file in {state_root() / 'devices'}: {system_reason(problem)}",
                "set XDG_STATE_HOME to a folder on a file system that supports locks",
            ) from problem
        time.sleep(_POLL_S)


def _try_range(handle: int, start: int, length: int, *, exclusive: bool) -> None:
    """Lock the bytes for this open file, not for the process, which has several threads."""
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))


def _try_whole(handle: int, start: int, length: int, *, exclusive: bool) -> None:
    """Lock the whole machine, because nothing can be pinned here."""
    del start, length
    fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


_try = _try_range if sys.platform == "linux" else _try_whole
