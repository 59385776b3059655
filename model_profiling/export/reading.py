"""Reads back what an export wrote beside its program; free of torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model_profiling.errors import FormatError
from model_profiling.export.records import SCHEMA_VERSION, ExportResult
from model_profiling.json_record import parse_record, read_json_object

_AGAIN = "export the model again"


def read_export(pte: Path) -> ExportResult:
    """What was written of an export beside its program."""
    summary = Path(f"{pte}.json")
    content = read_json_object(summary, _AGAIN, follow=True)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{summary} is of another version of the kit", _AGAIN)
    found = parse_record(ExportResult, content, str(summary), _AGAIN)
    graph = found.graph and pte.parent / found.graph
    etrecord = pte.parent / found.etrecord
    return replace(found, pte=pte, etrecord=etrecord, graph=graph, summary=summary)
