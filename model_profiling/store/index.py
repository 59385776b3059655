"""The index of a store, `store.json`: which Parquet files count.

Every change rewrites the whole index, after the files that it names are on disk. So a reader sees the store
before a change or after it, and a killed writer leaves only files that nothing names. Writers take turns with
a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.records import parse_flat, read_json_object, record_json
from model_profiling.core.safe_read import kind_of
from model_profiling.store.tables import TABLES

INDEX = "store.json"
_LOCK = ".lock"
_PATH = re.compile(r"data/([a-z]+)/month=[0-9]{4}-(?:0[1-9]|1[0-2])/[0-9a-f]{32}\.parquet")
FIX = "see what is damaged: sme2prof store check --store FOLDER"
_ANOTHER = "name a folder that holds a store"


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    rows: int
    bytes: int
    sha256: str

    @property
    def table(self) -> str:
        return self.path.split("/")[1]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    schema_version: Literal[2] = 2
    kind: Literal["sme2prof store"] = "sme2prof store"
    kit: str = ""
    files: tuple[DataFile, ...] = ()

    def of_table(self, table: str) -> list[DataFile]:
        return [found for found in self.files if found.table == table]

    def changed(self, gone: Iterable[DataFile], new: Iterable[DataFile]) -> Index:
        removed = set(gone)
        kept = [found for found in self.files if found not in removed]
        return replace(self, kit=__version__, files=(*kept, *new))


def read_index(root: Path) -> Index:
    path = root / INDEX
    content = read_json_object(path, _ANOTHER)
    version = content.get("schema_version")
    if isinstance(version, int) and version > 2:
        raise FormatError(f"{path} is of version {version}, which a later kit made", "update the kit")
    if version == 1:
        raise FormatError(
            f"{path} is of version 1, which an earlier kit made",
            "add the runs to a new store: sme2prof store add RUN_DIR... --store NEW_FOLDER",
        )
    index = parse_flat(Index, content, str(path), _ANOTHER)
    for found in index.files:
        named = _PATH.fullmatch(found.path)
        if named is None or named[1] not in TABLES:
            raise FormatError(f"{path}: {found.path[:120]!r} is no file of a store", FIX)
    return index


def write_index(root: Path, old: Index, new: Index) -> None:
    """Put `new` into force. Files that only `old` names are kept for readers for another day."""
    with files.replacing(root / INDEX) as part, part.open("wb") as stream:
        stream.write(files.encoded(files.json_text(record_json(new))))
        sync(stream)
    sync_folder(root)
    for found in set(old.files) - set(new.files):
        with contextlib.suppress(OSError):
            os.utime(root / found.path, follow_symlinks=False)


@contextlib.contextmanager
def lock(root: Path) -> Iterator[None]:
    """Wait for other writers; the system frees the lock however its holder ends."""
    try:
        handle = files.open_in_place(root / _LOCK)
    except OSError as problem:
        raise InputError(
            f"cannot write {root / _LOCK}: {system_reason(problem)}", "check the folder and the disk"
        ) from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sync(stream: IO[bytes]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def checked_path(root: Path, found: DataFile) -> Path:
    """Return the file's path, if it is a regular file inside the store with the size in the index."""
    path = files.real_folder(root, root / found.folder) / Path(found.path).name
    try:
        seen = path.lstat()
    except OSError as problem:
        raise FormatError(f"cannot read {path}: {system_reason(problem)}", FIX) from problem
    if kind := kind_of(seen.st_mode):
        raise FormatError(f"{path} is {kind}, not a regular file", FIX)
    if seen.st_size != found.bytes:
        raise FormatError(f"{path} has {seen.st_size} bytes, not {found.bytes}: it is damaged", FIX)
    return path
