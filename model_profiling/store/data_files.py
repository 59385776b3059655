"""Parquet files of a store: written whole under the hash of what is in them, read only if they are as they
were written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling import files
from model_profiling.errors import FormatError, InputError, system_reason
from model_profiling.extras import needed
from model_profiling.reading import kind_of
from model_profiling.store.log import FIX, DataFile, sync_folder
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
    fields = [arrow.field(column.name, types[column.kind]) for column in table.columns]
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
