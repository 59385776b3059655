"""Who may measure on a machine now.

On this machine a measurement is alone; exports and emulation may run beside each other, and beside a
measurement that is pinned to CPUs they keep off. Every process of the kit uses these locks, and says in a
file beside them what it does. Another machine or a phone has one run at a time, with a lock for each of its
names. The kernel frees all of them however their holder ends. They are per user and on this machine: a run
that somebody starts from another machine is not noticed.
"""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import itertools
import os
import re
import secrets
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError, system_reason
from model_profiling.core.files import LockFile
from model_profiling.core.formatting import in_short, listing, printable
from model_profiling.runner.cache import state_root

_POLL_S = 0.02
_TRIES_UNTOLD = 10
"""Two that pass the door at the same moment do not wait for each other."""
_TRIES_BETWEEN = 50
_MOST_CPUS = 1 << 16
_MEASURING = _MOST_CPUS
"""The byte of the lock file for the whole machine; each lower byte is for one CPU."""
_NOTE = ".this-machine-note-"
_LONGEST_NOTE, _MOST_NAMED = 160, 3
Told = Callable[[str], object]
_waits: contextvars.ContextVar[bool] = contextvars.ContextVar("waits", default=True)
_stops = [threading.Event()]


def measuring_alone(
    what: str, cpus: Iterable[int] = (), *, waiting: Told | None = None, needed: bool = True
) -> contextlib.AbstractContextManager[ProfilingError | None]:
    """Measure on `cpus`, or on all, alone on the machine. Others who want it read that this process does
    `what` ("measures toy_cnn"). `waiting` is told for whom this one waits. If there can be no lock, that is
    raised, or given to the block if the lock is not `needed`."""
    return _locked(what, exclusive=True, cpus=cpus, waiting=waiting, needed=needed)


def working_beside(
    what: str, *, waiting: Told | None = None, needed: bool = True
) -> contextlib.AbstractContextManager[ProfilingError | None]:
    """Work while nobody measures on this thread's CPUs. Never nest: a waiting measurement lets nobody in."""
    return _locked(what, exclusive=False, cpus=allowed_cpus(), waiting=waiting, needed=needed)


@contextlib.contextmanager
def may_wait(allowed: bool) -> Iterator[None]:
    """During the block, raise InUseError in place of waiting, unless it is `allowed`."""
    before = _waits.set(allowed)
    try:
        yield
    finally:
        _waits.reset(before)


def stop_waiting() -> None:
    """End every wait of this process's threads with InUseError."""
    _stops.pop().set()
    _stops.append(threading.Event())


def holders() -> tuple[str, ...]:
    """Return what the present holders wrote about themselves, each as `process 4711 measures toy_cnn`."""
    found = []
    for path in sorted(_folder().glob(f"{_NOTE}*")):
        with contextlib.suppress(OSError), contextlib.ExitStack() as until:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            until.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()  # its writer was killed
            except BlockingIOError:
                said = os.read(handle, 4 * _LONGEST_NOTE).decode(errors="replace")
                found.append(printable(in_short(said))[:_LONGEST_NOTE])
    return tuple(found)


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
def _locked(
    what: str, *, exclusive: bool, cpus: Iterable[int], waiting: Told | None, needed: bool
) -> Iterator[ProfilingError | None]:
    said: set[str] = set()
    stop = _stops[0]

    def wait(tries: int) -> None:
        if stop.wait(_POLL_S):
            raise InUseError("this machine is in use, and waiting for it was ended", "try again")
        if tries % _TRIES_BETWEEN != _TRIES_UNTOLD:
            return
        names = holders()[:_MOST_NAMED]
        who = listing(names) if names else "another process of the kit is working"
        if not _waits.get():
            raise InUseError(f"this machine is in use: {who}", "wait for it to end, or leave --no-wait out")
        if waiting is not None and who not in said:
            said.add(who)
            waiting(f"waiting: {who}")

    without: ProfilingError | None = None
    with contextlib.ExitStack() as held:
        try:
            handle = _opened(held, ".this-machine.lock")
            with contextlib.ExitStack() as door:
                # Whoever waits for the lock keeps the door shut: new work cannot delay a measurement forever.
                _take(_opened(door, ".this-machine-door.lock"), 0, 1, exclusive=True, wait=wait)
                if exclusive:
                    _take(handle, _MEASURING, 1, exclusive=True, wait=wait)
                for start, length in _ranges(cpus):
                    _take(handle, start, length, exclusive=exclusive, wait=wait)
            _keep_note(held, f"process {os.getpid()} {what}")
        except (InputError, SetupError) as problem:
            if needed or isinstance(problem, InUseError):
                raise
            without = problem
        yield without


def _keep_note(until: contextlib.ExitStack, text: str) -> None:
    """Write down who holds the machine, in a file that is locked for as long as that is true."""
    holders()  # which removes what killed ones wrote
    path = _folder() / f"{_NOTE}{secrets.token_hex(8)}"
    with contextlib.suppress(OSError):  # the lock does not depend on it
        note = until.enter_context(path.open("xb", buffering=0))
        until.callback(path.unlink, missing_ok=True)
        fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        note.write(files.encoded(text if len(text) <= _LONGEST_NOTE else f"{text[: _LONGEST_NOTE - 3]}..."))


def _folder() -> Path:
    return state_root() / "devices"


def _opened(until: contextlib.ExitStack, name: str) -> int:
    path = _folder() / name
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


def _take(handle: int, start: int, length: int, *, exclusive: bool, wait: Callable[[int], None]) -> None:
    for tries in itertools.count():
        try:
            _try(handle, start, length, exclusive=exclusive)
            return
        except BlockingIOError:
            wait(tries)
        except OSError as problem:
            raise SetupError(
                f"cannot lock a file in {_folder()}: {system_reason(problem)}",
                "set XDG_STATE_HOME to a folder on a file system that supports locks",
            ) from problem


def _try_range(handle: int, start: int, length: int, *, exclusive: bool) -> None:
    """Lock the bytes for this open file, not for the process, which has several threads."""
    kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
    fcntl.fcntl(handle, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))


def _try_whole(handle: int, start: int, length: int, *, exclusive: bool) -> None:
    """Lock the whole machine, because nothing can be pinned here."""
    del start, length
    fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)


_try = _try_range if sys.platform == "linux" else _try_whole


# Phones and machines behind ssh.


def file_name(machine: str) -> str:
    """Return a machine's name as a valid file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", machine)


@dataclass(frozen=True, slots=True)
class MachineLock:
    """Allows one run at a time on the machine that the user calls `title`: two would disturb each other's
    times and power modes. A machine can be reached by several names, so each name has a lock."""

    title: str
    names: tuple[str, ...]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the machine during the block, or raise an error that names the holder."""
        with contextlib.ExitStack() as locks:
            for lock in self._locks:
                locks.enter_context(lock.held())
            yield

    def check_free(self) -> None:
        for lock in self._locks:
            lock.check_free()

    def is_held(self) -> bool:
        try:
            self.check_free()
        except InputError:
            return True
        return False

    @property
    def _locks(self) -> list[LockFile]:
        fix = "wait for it to end (two at once would disturb each other's times), or use another machine"
        names = sorted({file_name(name) for name in self.names if name})
        elsewhere = "set XDG_STATE_HOME to a folder of yours that can be written to"
        return [LockFile(_folder() / f".{name}.lock", self.title, fix, elsewhere) for name in names]
