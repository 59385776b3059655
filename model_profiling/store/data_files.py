"""The files of a store: the index, `store.json`, says which Parquet files count.

Every change rewrites the whole index, after the files that it names are on disk. So a reader sees the store
before a change or after it, and a killed writer leaves only files that nothing names. Writers take turns with
a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.hints import needed
from model_profiling.core.records import parse_flat, read_json_object, record_json
from model_profiling.core.safe_read import kind_of
from model_profiling.store.tables import SCHEMA_VERSION, TABLES, Row, Table

if TYPE_CHECKING:
    import pyarrow

INDEX = "store.json"
_LOCK = ".lock"
_PATH = re.compile(r"data/([a-z]+)/month=[0-9]{4}-(?:0[1-9]|1[0-2])/[0-9a-f]{32}\.parquet")
FIX = "find the damage: sme2prof store check --store FOLDER; --repair leaves it out"
_ANOTHER = "give a folder that contains a store"


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
        raise FormatError(f"{path} has version {version}, which a later kit wrote", "update the kit")
    if version == 1:
        raise FormatError(
            f"{path} has version 1, which an earlier kit wrote",
            "add the runs to a new store: sme2prof store add RUN_DIR... --store NEW_FOLDER",
        )
    index = parse_flat(Index, content, str(path), _ANOTHER)
    for found in index.files:
        named = _PATH.fullmatch(found.path)
        if named is None or named[1] not in TABLES:
            raise FormatError(f"{path}: {found.path[:120]!r} is not a file of a store", FIX)
    return index


def write_index(root: Path, old: Index, new: Index) -> None:
    """Put `new` into force; the caller has the lock. Files that only `old` names are kept for readers for
    another day, what a writer left that was killed here is not."""
    for left in root.glob(f".{INDEX}.*.part"):
        left.unlink(missing_ok=True)
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
        raise FormatError(f"{path} is damaged: it has {seen.st_size} bytes instead of {found.bytes}", FIX)
    return path


# Parquet files: written, read and merged.

FOLDER = "data"
_ROWS = 1 << 17
"""Rows per row group, which a reader has in memory at once."""


def arrow_schema(table: Table) -> pyarrow.Schema:
    arrow = needed("pyarrow", "store")
    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
        "moment": arrow.timestamp("us"),
        "texts": arrow.list_(arrow.string()),
        "numbers": arrow.list_(arrow.float64()),
    }
    fields = [arrow.field(column.name, types[column.column_kind]) for column in table.columns]
    return arrow.schema(fields, metadata={"table": table.name, "schema_version": str(SCHEMA_VERSION)})


def batch_of(table: Table, rows: Sequence[Row], where: str) -> pyarrow.RecordBatch:
    """Return `rows` as an Arrow batch; a row that does not fit is an error that names `where` it is from."""
    arrow = needed("pyarrow", "store")
    schema = arrow_schema(table)
    arrays = []
    for place, column in enumerate(schema):
        try:
            arrays.append(arrow.array([row[place] for row in rows], column.type))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError, UnicodeEncodeError) as problem:
            raise FormatError(
                f"{where}: wrong value in column {column.name} of {table.name}: {problem}",
                "analyse the run again: sme2prof analyze RUN_DIR",
            ) from problem
    return arrow.record_batch(arrays, schema=schema)


def write_table(root: Path, table: str, month: str, batches: Iterable[pyarrow.RecordBatch]) -> DataFile:
    """Write a new file of `table` to disk; nothing reads it before the index names it."""
    arrow, parquet = needed("pyarrow", "store"), needed("pyarrow.parquet", "store")
    folder = files.real_folder(root, root / FOLDER / table / f"month={month}")
    path = folder / f"{secrets.token_hex(16)}.parquet"
    with files.replacing(path) as part, part.open("wb") as stream:
        with parquet.ParquetWriter(stream, arrow_schema(TABLES[table]), compression="zstd") as writer:
            rows = 0
            for together in _large(batches):
                writer.write_table(arrow.Table.from_batches(together).combine_chunks(), _ROWS)
                rows += sum(batch.num_rows for batch in together)
        sync(stream)
        size, sha256 = stream.tell(), files.sha256(part)
    sync_folder(folder)
    return DataFile(path.relative_to(root).as_posix(), rows, size, sha256)


def _large(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[list[pyarrow.RecordBatch]]:
    """Group small batches, because each write becomes a row group of the file."""
    held: list[pyarrow.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS // 2:
            yield held
            held, rows = [], 0
    if held:
        yield held


def batches_in(
    root: Path, found: DataFile, columns: Sequence[str] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the rows of a file in batches, with the columns that its table has today, or only those named."""
    arrow, parquet = needed("pyarrow", "store"), needed("pyarrow.parquet", "store")
    path = checked_path(root, found)
    whole = arrow_schema(TABLES[found.table])
    schema = arrow.schema([whole.field(name) for name in columns]) if columns else whole
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as opened:
            there = opened.schema_arrow
            check_columns(schema, there, path)
            named = [name for name in schema.names if name in there.names]
            for batch in opened.iter_batches(_ROWS, columns=named, use_threads=False):
                missing = {name: arrow.nulls(len(batch), schema.field(name).type) for name in schema.names}
                have = dict(zip(named, batch.columns, strict=True))
                yield arrow.record_batch(list({**missing, **have}.values()), schema=schema)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as problem:
        raise FormatError(f"{path} is damaged: {str(problem).partition(chr(10))[0]}", FIX) from problem


def check_columns(schema: pyarrow.Schema, found: pyarrow.Schema, path: Path) -> None:
    """Refuse columns whose type is not today's; newer columns may be missing."""
    for field in schema:
        if field.name in found.names and found.field(field.name).type != field.type:
            raise FormatError(f"{path}: {field.name} is {found.field(field.name).type}", FIX)


def merged(
    root: Path,
    group: Sequence[DataFile],
    change: Callable[[pyarrow.RecordBatch], pyarrow.RecordBatch] | None = None,
) -> list[DataFile]:
    """Merge files of one folder into one, with rows changed; empty if no row is left."""
    table, month = group[0].table, group[0].folder.rpartition("=")[2]
    every = (batch for found in group for batch in batches_in(root, found))
    written = write_table(root, table, month, map(change, every) if change else every)
    return [written] if written.rows else []


def without_runs(root: Path, found: DataFile, gone: Sequence[str]) -> list[DataFile]:
    arrow, compute = needed("pyarrow", "store"), needed("pyarrow.compute", "store")
    runs = arrow.array(gone, arrow.string())

    def theirs(batch: pyarrow.RecordBatch) -> pyarrow.Array:
        return compute.is_in(batch.column("run_id"), value_set=runs)

    if not any(compute.any(theirs(batch)).as_py() for batch in batches_in(root, found, ["run_id"])):
        return [found]
    return merged(root, [found], lambda batch: batch.filter(compute.invert(theirs(batch))))


def with_texts(batch: pyarrow.RecordBatch, column: str, texts: Sequence[str]) -> pyarrow.RecordBatch:
    """Return `batch` with other values in a column of text."""
    arrow = needed("pyarrow", "store")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns[column] = arrow.array(texts, arrow.string())
    return arrow.record_batch(list(columns.values()), schema=batch.schema)
