"""Parquet files of a store: written whole under the hash of what is in them, read only if they are as they
were written.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.hints import needed
from model_profiling.core.safe_read import kind_of
from model_profiling.store.log import FIX, Change, DataFile, KnownRun, Log, Replaced, sync_folder
from model_profiling.store.tables import SCHEMA_VERSION, TABLES, Row, Table

if TYPE_CHECKING:
    import pyarrow


FOLDER = "data"
_ROWS = 1 << 17
"""Of a row group: what a reader has in memory at once."""


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
    """`rows` in the form of the file; one that does not fit is an error that names `where` it is from."""
    arrow = needed("pyarrow", "store")
    schema = arrow_schema(table)
    arrays = []
    for place, column in enumerate(schema):
        try:
            arrays.append(arrow.array([row[place] for row in rows], column.type))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError, UnicodeEncodeError) as problem:
            raise FormatError(
                f"{where}: {column.name} of {table.name} is not what it should be: {problem}",
                "analyse the run again: sme2prof analyze RUN_DIR",
            ) from problem
    return arrow.record_batch(arrays, schema=schema)


def write_table(root: Path, table: str, month: str, batches: Iterable[pyarrow.RecordBatch]) -> DataFile:
    """A new file of `table`, on the disk when this returns; nothing reads it before the log names it."""
    parquet = needed("pyarrow.parquet", "store")
    folder = files.real_folder(root, root / FOLDER / table / f"month={month}")
    part = files.make_folder(folder) / f".{secrets.token_hex(8)}.part"
    rows = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o666), "wb") as stream:
            schema = arrow_schema(TABLES[table])
            with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
                for batch in batches:
                    writer.write_batch(batch, row_group_size=_ROWS)
                    rows += batch.num_rows
            stream.flush()
            os.fsync(stream.fileno())
        size, name = part.stat().st_size, f"{files.sha256(part)}.parquet"
        part.replace(folder / name)
        sync_folder(folder)
    except OSError as problem:
        reason = system_reason(problem)
        raise InputError(
            f"cannot write into {folder}: {reason}", "check the folder and the disk"
        ) from problem
    finally:
        part.unlink(missing_ok=True)
    return DataFile((folder / name).relative_to(root).as_posix(), rows, size)


def checked_paths(root: Path, found: Iterable[DataFile]) -> list[str]:
    """Where the files lie, if each is a regular file of this very folder with the size that the log says."""
    real: dict[str, Path] = {}
    paths = []
    for one in found:
        if one.folder not in real:
            real[one.folder] = files.real_folder(root, root / one.folder)
        path = real[one.folder] / Path(one.path).name
        try:
            seen = path.lstat()
        except OSError as problem:
            raise FormatError(f"cannot read {path}: {system_reason(problem)}", FIX) from problem
        if kind := kind_of(seen.st_mode):
            raise FormatError(f"{path} is {kind}, not a regular file", FIX)
        if seen.st_size != one.bytes:
            raise FormatError(f"{path} has {seen.st_size} bytes, not {one.bytes}: it is damaged", FIX)
        paths.append(str(path))
    return paths


def batches_in(
    root: Path, found: DataFile, columns: Sequence[str] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a file, some at a time, with the columns that its table has today; or only those named."""
    arrow, parquet = needed("pyarrow", "store"), needed("pyarrow.parquet", "store")
    (path,) = checked_paths(root, [found])
    whole = arrow_schema(TABLES[found.table])
    schema = arrow.schema([whole.field(name) for name in columns]) if columns else whole
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as opened:
            there = opened.schema_arrow
            named = [name for name in schema.names if name in there.names]
            for name in named:
                if there.field(name).type != schema.field(name).type:
                    raise FormatError(f"{path}: {name} is {there.field(name).type}", FIX)
            for batch in opened.iter_batches(_ROWS, columns=named, use_threads=False):
                yield arrow.record_batch(
                    [
                        batch.column(field.name)
                        if field.name in named
                        else arrow.nulls(len(batch), field.type)
                        for field in schema
                    ],
                    schema=schema,
                )
    except (arrow.ArrowException, OSError) as problem:
        raise FormatError(f"{path} is damaged: {problem}", FIX) from problem


# What a store holds after all changes of its log: the files that count and the runs in them.

_KNOWN = ("run_id", "begun", "processes", "state")
_FEW = 100
"""Questions for one run, before all are taken in."""
_ENDED = ("finished", "failed", "")
"""States of a run that is not continued; empty is one without a manifest."""


@dataclass(slots=True)
class Contents:
    """Up to change `number`."""

    number: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    """The runs that were continued, and which run each has become in the end."""
    unmerged: int = 0
    """How many changes were made since the last that says everything."""
    _runs: dict[str, KnownRun] = field(default_factory=dict)
    _by_beginning: dict[str, str] = field(default_factory=dict)
    _unread: list[DataFile] = field(default_factory=list)
    """Of `runs`: readers need not know who is in there."""
    _columns: Any = None
    """What of those was read, as a table of Arrow's."""
    _looked_up: int = 0

    def catch_up(self, log: Log) -> None:
        """Take in what was done since, by whomever."""
        for number, change in log.since(self.number):
            self.take(number, change)

    def take(self, number: int, change: Change) -> None:
        self.number = number
        if change.whole:
            self.unmerged = 0
            self.files = {found.path: found for found in change.files}
            self.replaced = {one.run_id: one.by for one in change.replaced}
            self._runs, self._by_beginning, self._columns, self._looked_up = {}, {}, None, 0
            self._unread = self.of_table("runs")
            return
        self.unmerged += 1
        self.files.update((found.path, found) for found in change.files)
        for run in change.runs:
            self._take_run(run)

    def _take_run(self, run: KnownRun) -> None:
        if run.supersedes:
            self._runs.pop(run.supersedes, None)
            self.replaced[run.supersedes] = run.run_id
            for earlier, by in self.replaced.items():
                if by == run.supersedes:
                    self.replaced[earlier] = run.run_id
        self._runs[run.run_id] = run
        self._by_beginning[run.begun] = run.run_id

    def runs(self, root: Path) -> Mapping[str, KnownRun]:
        """Those that count, by run_id; `root` is where the store is."""
        for one in self._unread:
            for batch in batches_in(root, one, _KNOWN):
                columns = (column.to_pylist() for column in batch.columns)
                for told in zip(*columns, strict=True):
                    self._take_row(*told)
        self._unread, self._columns = [], None
        return self._runs

    def _take_row(
        self, run_id: str | None, begun: str | None, processes: int | None, state: str | None
    ) -> None:
        if run_id and begun and run_id not in self.replaced and run_id not in self._runs:
            self._runs[run_id] = KnownRun(run_id, begun, processes or 0, has_ended(state or ""))
            self._by_beginning.setdefault(begun, run_id)

    def same_beginning(self, root: Path, begun: str) -> KnownRun | None:
        """What a run has been before, or has become since."""
        if self._unread and begun not in self._by_beginning:
            self._looked_up += 1
            if self._looked_up > _FEW:
                self.runs(root)
            else:
                self._look_up(root, begun)
        return self._runs.get(self._by_beginning.get(begun, ""))

    def _look_up(self, root: Path, begun: str) -> None:
        """In files whose runs are not known yet. Their columns are scanned and no run becomes an object of
        Python's, so that one more costs hardly more in a large store."""
        arrow, compute = needed("pyarrow", "store"), needed("pyarrow.compute", "store")
        if self._columns is None:
            read = [batch for one in self._unread for batch in batches_in(root, one, _KNOWN)]
            self._columns = arrow.Table.from_batches(read).combine_chunks() if read else None
        if (table := self._columns) is not None:
            for row in table.filter(compute.equal(table.column("begun"), begun)).to_pylist():
                self._take_row(**row)

    def of_table(self, table: str) -> list[DataFile]:
        return [found for found in self.files.values() if found.table == table]

    def compacted(self, gone: Iterable[str], merged: Iterable[DataFile]) -> Change:
        """All of it in one change, with `merged` in place of what is `gone`."""
        left = set(gone)
        kept = (found for found in self.files.values() if found.path not in left)
        return Change(
            kind="compact",
            made=stamp(),
            kit=__version__,
            files=(*kept, *merged),
            replaced=tuple(Replaced(*one) for one in self.replaced.items()),
            whole=True,
        )


def has_ended(state: str) -> bool:
    """Whether a run in `state` is one that is not continued."""
    return state in _ENDED


def stamp() -> str:
    """This moment, for people who read the log."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
