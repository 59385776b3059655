"""The log of a store: one file for every change, numbered, made whole and never changed.

A change counts from the moment its file is there, and what it names is all on the disk before. Only one
process can make a number: who loses looks at what the winner did and takes the next. Readers go back from the
newest to one that says everything (`whole`, as compacting leaves it), so that a long log costs nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.records import parse_flat, read_json_object, record_json
from model_profiling.store.tables import TABLES

FOLDER = "log"
_NAME = re.compile(r"([0-9]{8})\.json")
_DATA = re.compile(r"data/([a-z]+)/month=[0-9]{4}-(?:0[1-9]|1[0-2])/[0-9a-f]{64}\.parquet")
_ID = re.compile(r"[0-9a-f]{32}")
_LAST = 99_999_999
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
FIX = "see what is damaged: sme2prof store check --store FOLDER"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of one table; its name is the SHA-256 of what is in it."""

    path: str
    rows: int
    bytes: int

    @property
    def table(self) -> str:
        return self.path.split("/")[1]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def sha256(self) -> str:
        return Path(self.path).stem


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What adding has to know of a run."""

    run_id: str
    begun: str
    processes: int = 0
    ended: bool = True
    supersedes: str = ""

    @property
    def progress(self) -> tuple[int, bool]:
        """How far it had come: of two with one beginning, the further stands for both."""
        return self.processes, self.ended


@dataclass(frozen=True, slots=True)
class Replaced:
    """A run that was continued, and the run that it has become."""

    run_id: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One file of the log."""

    schema_version: Literal[1] = 1
    kind: Literal["add", "tag", "compact"]
    made: str
    """When."""
    kit: str = ""
    files: tuple[DataFile, ...] = ()
    """That it adds; all that count where it is `whole`."""
    runs: tuple[KnownRun, ...] = ()
    """That it adds. One that is `whole` names none: they are in its files of `runs`."""
    whole: bool = False
    replaced: tuple[Replaced, ...] = ()
    """Of the whole log, where it is `whole`."""


class Log:
    """The folder `log` of the store in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER

    def numbers(self) -> list[int]:
        """Those that are there, in order."""
        try:
            with os.scandir(files.real_folder(self.root, self.folder)) as entries:
                found = [_NAME.fullmatch(entry.name) for entry in entries]
        except OSError as problem:
            raise InputError(
                f"cannot read {self.folder}: {system_reason(problem)}", "name a folder that holds a store"
            ) from problem
        return sorted(int(name[1]) for name in found if name)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:08}.json"

    def read(self, number: int) -> Change:
        path = self.path(number)
        change = parse_flat(Change, read_json_object(path, FIX), str(path), FIX)
        return _checked(change, path)

    def since(self, known: int) -> Iterator[tuple[int, Change]]:
        """Every change after number `known` that still matters, the oldest first."""
        numbers = self.numbers()
        there, found = set(numbers), []
        for number in range(numbers[-1] if numbers else 0, known, -1):
            if number not in there:
                raise FormatError(f"{self.path(number)} is missing: what it added is not known", FIX)
            change = self.read(number)
            found.append((number, change))
            if change.whole:
                break
        return reversed(found)

    def create(self, number: int, change: Change) -> bool:
        """Make `change` number `number`, whole and on the disk; False if another process has made it."""
        if number > _LAST:
            raise InputError(f"{self.folder} is full", "begin another store")
        content = files.encoded(files.json_text(record_json(change)))
        path = self.path(number)
        part = self.folder / f".{path.name}.{secrets.token_hex(6)}.part"
        try:
            write_new(part, content)
            made = _give_name(part, path)
        except OSError as problem:
            reason = system_reason(problem)
            raise InputError(f"cannot write {path}: {reason}", "check the folder and the disk") from problem
        finally:
            part.unlink(missing_ok=True)
        sync_folder(self.folder)
        return made


def _checked(change: Change, path: Path) -> Change:
    """`change`, if it names only files of this store, in the way that the kit does."""
    for found in change.files:
        match = _DATA.fullmatch(found.path)
        if match is None or match[1] not in TABLES:
            raise FormatError(f"{path}: {found.path[:120]!r} is no file of a store", FIX)
        if found.rows < 0 or found.bytes <= 0:
            raise FormatError(f"{path}: {found.path} cannot have {found.bytes} bytes", FIX)
    ids = [run_id for run in change.runs for run_id in (run.run_id, run.begun, run.supersedes or run.run_id)]
    for run_id in (*ids, *(word for one in change.replaced for word in (one.run_id, one.by))):
        if not _ID.fullmatch(run_id):
            raise FormatError(f"{path}: {run_id[:40]!r} names no run", FIX)
    return change


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, and see it on the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """See the names in `folder` on the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _give_name(part: Path, path: Path) -> bool:
    """Call the whole file `part` `path` too, unless something has that name."""
    try:
        os.link(part, path)
        return True
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
    return _rename_alone(part, path)


def _rename_alone(part: Path, path: Path) -> bool:
    """The same on file systems without hard links: under a lock that all who add there take."""
    handle = files.open_in_place(path.parent / ".lock")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return False
        part.replace(path)
        return True
    finally:
        os.close(handle)
