"""One run on a machine at a time: two would disturb each other's times, and set each other's power mode.

The locks are this user's on this machine; who reaches the other machine from elsewhere is not seen.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from model_profiling.errors import InputError
from model_profiling.lock_file import LockFile
from model_profiling.runner.cache import state_root


def file_name(machine: str) -> str:
    """What a machine calls itself, fit for a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", machine)


@dataclass(frozen=True, slots=True)
class MachineLock:
    """The lock of the machine that the user calls `title`: one for each of its names, because the same one
    may be reached by several."""

    title: str
    names: tuple[str, ...]

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Have the machine alone for the length of the block, or say who has it."""
        with contextlib.ExitStack() as locks:
            for lock in self._locks:
                locks.enter_context(lock.held())
            yield

    def check_free(self) -> None:
        """Say who has the machine, if anyone does."""
        for lock in self._locks:
            lock.check_free()

    def is_held(self) -> bool:
        """Whether a run is at work on the machine."""
        try:
            self.check_free()
        except InputError:
            return True
        return False

    @property
    def _locks(self) -> list[LockFile]:
        folder = state_root() / "devices"
        fix = "wait for it to end (two at once would disturb each other's times), or use another machine"
        names = sorted({file_name(name) for name in self.names if name})
        elsewhere = "set XDG_STATE_HOME to a folder of yours that can be written to"
        return [LockFile(folder / f".{name}.lock", self.title, fix, elsewhere) for name in names]
