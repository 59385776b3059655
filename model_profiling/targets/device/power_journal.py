"""What the kit has changed on a phone and not put back yet, kept on this machine until it has.

It is written before the first change and removed after everything was seen to be back. A run that is killed,
or loses the phone, leaves it; whoever reaches the phone next finishes the work.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.errors import FormatError, InputError
from model_profiling.json_record import read_record, write_record
from model_profiling.runner.cache import state_root
from model_profiling.targets.device.in_use import file_name

_FIX = "remove the file after setting the phone's settings by hand"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting: what it was (None: nothing), and what the kit gives it."""

    name: str
    before: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Changes that were, or were about to be, made to the phone with this id."""

    device: str
    mode: str
    since: str
    changes: tuple[Change, ...]
    schema_version: Literal[1] = 1


def unfinished_work() -> tuple[Unfinished, ...]:
    """Of every phone; what cannot be read is left to whoever reaches that phone."""
    found = []
    for path in sorted((state_root() / "devices").glob("[!.]*.json")):
        with contextlib.suppress(FormatError, InputError):
            found.append(read_record(Unfinished, path, _FIX))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PowerJournal:
    """The journal of one phone, known by an id of its own: the same by whichever cable it is reached."""

    device: str

    @property
    def path(self) -> Path:
        return state_root() / "devices" / f"{file_name(self.device)}.json"

    def read(self) -> Unfinished | None:
        """What is unfinished; None when nothing is."""
        if not self.path.exists():
            return None
        found = read_record(Unfinished, self.path, _FIX)
        if found.device != self.device:
            raise FormatError(f"{self.path} is the journal of {found.device}", _FIX)
        return found

    def write(self, unfinished: Unfinished) -> None:
        write_record(self.path, unfinished)
        # On the disk before the phone is touched, whatever happens to this machine meanwhile.
        with self.path.open("rb") as written:
            os.fsync(written.fileno())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
