"""Every event of every dump of a run in one Parquet file, one dump after another in row groups.

The columns of `read_etdump(...).to_pandas()` under the same names, after those that identify the dump.
Operators have the most exact times there are (`analysis/operators.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_profiling._version import __version__
from model_profiling.analysis.event_views import DumpEvents, read_events
from model_profiling.core import files
from model_profiling.core.hints import needed
from model_profiling.report.data import ReportData
from model_profiling.report.tools import no_dumps, whole_text
from model_profiling.runs.run import Dump, Run

FILE = "events.parquet"
SCHEMA_VERSION = 1
COLUMNS = {
    "experiment": "string", "threads": "int32", "round": "int32", "dump": "string", "times": "string",
    "run_index": "int32", "block": "string", "name": "string",
    "start_ns": "int64", "end_ns": "int64", "duration_ns": "int64",
    "instruction_id": "int32", "delegate_name": "string", "delegate_id": "int32", "is_delegated": "bool_",
    "chain_index": "int32", "block_index": "int32",
}  # fmt: skip
_ROWS = 1 << 17
"""Rows per group: few enough that a file of any size is made in bounded memory."""


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    run, path = data.run, folder / FILE
    if not run.dumps:
        raise no_dumps(data)
    arrow, parquet = needed("pyarrow", "tools"), needed("pyarrow.parquet", "tools")
    fields = [(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()]
    schema = arrow.schema(fields, metadata=_metadata(data))
    with files.replacing(path) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for events in read_events(run):
            for batch in _batches(arrow, schema, run, events):
                writer.write_batch(batch, row_group_size=_ROWS)
    return (path,)


def _batches(arrow: Any, schema: Any, run: Run, events: DumpEvents) -> Iterator[Any]:
    texts = arrow.array([*map(whole_text, events.texts)], arrow.string())
    whose = {
        "experiment": whole_text(events.dump.series.experiment),
        "threads": events.dump.series.threads,
        "round": events.dump.round,
        "dump": whole_text(_named(run, events.dump)),
        "times": events.dump.times.value,
    }
    for first in range(0, len(events), _ROWS):
        rows = slice(first, first + _ROWS)
        count = len(events.numbers["run_index"][rows])
        columns = []
        for field in schema:
            if field.name in whose:
                columns.append(arrow.repeat(arrow.scalar(whose[field.name], field.type), count))
            elif field.name in events.coded:
                codes = events.coded[field.name][rows]
                columns.append(texts.take(arrow.array(codes, mask=codes < 0)))
            else:
                columns.append(arrow.array(events.numbers[field.name][rows], field.type))
        yield arrow.record_batch(columns, schema=schema)


def _metadata(data: ReportData) -> dict[str, str]:
    manifest = data.run.manifest
    dumps = [
        {
            "dump": _named(data.run, dump),
            "experiment": dump.series.experiment,
            "threads": dump.series.threads,
            "round": dump.round,
            "times": dump.times.value,
            "warmup_runs": dump.warmup_runs,
            "turn_length": dump.turn_length,
        }
        for dump in data.run.dumps
    ]
    return {
        "schema_version": str(SCHEMA_VERSION),
        "made_by": f"sme2prof {__version__}",
        "model": whole_text(data.model),
        "model_sha256": manifest.model_sha256 if manifest else "",
        "dumps": json.dumps(dumps),
    }


def _named(run: Run, dump: Dump) -> str:
    inside = dump.path.is_relative_to(run.path)
    return dump.path.relative_to(run.path).as_posix() if inside else dump.path.name
