"""Writes, reads and merges the Parquet files of a store."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.hints import needed
from model_profiling.store.index import FIX, DataFile, checked_path, sync, sync_folder
from model_profiling.store.tables import SCHEMA_VERSION, TABLES, Row, Table

if TYPE_CHECKING:
    import pyarrow

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
                f"{where}: {column.name} of {table.name} is not what it should be: {problem}",
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
    except (arrow.ArrowException, OSError) as problem:
        raise FormatError(f"{path} is damaged: {problem}", FIX) from problem


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
