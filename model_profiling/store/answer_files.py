"""An answer as a file, written batch by batch: it may be larger than the memory."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from model_profiling import files
from model_profiling.csv_cells import csv_line
from model_profiling.errors import InputError
from model_profiling.extras import needed
from model_profiling.store.plain_values import cell
from model_profiling.store.query import Coming, plain_rows


def write_csv(path: Path, coming: Coming) -> int:
    """The number of rows; nothing known is an empty cell, lists are JSON."""
    rows = 0
    with files.writing_to(path) as stream:
        stream.write(files.encoded(f"{csv_line(coming.schema.names)}\n"))
        for batch in coming:
            lines = (f"{csv_line(map(cell, row))}\n" for row in plain_rows(batch))
            stream.write(files.encoded("".join(lines)))
            rows += batch.num_rows
    return rows


def write_parquet(path: Path, coming: Coming) -> int:
    """The number of rows; types are those of the answer."""
    arrow, parquet = needed("pyarrow", "store"), needed("pyarrow.parquet", "store")
    _check_types(arrow, parquet, coming)
    rows = 0
    with (
        files.writing_to(path) as stream,
        parquet.ParquetWriter(stream, coming.schema, compression="zstd") as writer,
    ):
        for batch in coming:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _check_types(arrow: Any, parquet: Any, coming: Coming) -> None:
    """Parquet knows fewer types than DuckDB; said before anything is written."""
    for field, kind in zip(coming.schema, coming.types, strict=True):
        try:
            with parquet.ParquetWriter(io.BytesIO(), arrow.schema([field])):
                pass
        except arrow.ArrowException as problem:
            raise InputError(
                f"a Parquet file cannot hold {field.name}, which is {kind}",
                f'write it as text: "{field.name}"::VARCHAR',
            ) from problem
