"""What sampling showed, for machines: in `analysis_summary.json`, and as one CSV file for each series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from model_profiling.analysis.inside import InsideOperator, InsideSeries
from model_profiling.report.csv_files import write_rows
from model_profiling.report.records import Value

COLUMNS = (
    "operator", "call", "position", "category", "samples", "part", "part_samples", "share", "low", "high",
    "ms", "function", "function_samples", "delegate_call",
)  # fmt: skip
"""A row for each function that an operator was seen in, with its part. Call and position are the
operator's as in every other file; `delegate_call` counts calls of delegates alone, as samples do."""


def write_inside_csv(path: Path, found: InsideSeries) -> None:
    write_rows(path, COLUMNS, (row for operator in found.operators for row in _rows(operator)))


def _rows(each: InsideOperator) -> Iterator[tuple[Value, ...]]:
    category = each.operator.category.value if each.operator else None
    call = each.operator.call if each.operator else None
    for kernel in each.kernels:
        portion = each.parts[kernel.part]
        yield (
            each.name, call, each.position, category, each.samples, kernel.part.value, portion.samples,
            portion.share, portion.low, portion.high, portion.ms, kernel.name, kernel.samples,
            each.call,
        )  # fmt: skip


def inside_facts(found: InsideSeries) -> dict[str, object]:
    """One series; shares are of time only where `shares_are_of_time` says so."""
    moving = found.moving if found.shown else None
    return {
        **asdict(found.series),
        "hz": found.hz,
        "executions": found.executions,
        "threads": found.threads,
        "samples": found.samples,
        "lost": found.lost,
        "outside_operators": found.outside,
        "unnamed_share": found.unnamed_share,
        "shares_are_of_time": found.shown,
        "problem": found.problem or None,
        "note": found.note or None,
        "data_movement_in_matrix_operators": asdict(moving) if moving else None,
        "operators": [_operator(operator) for operator in found.operators],
        "functions": [
            {
                "name": kernel.name,
                "part": kernel.part.value,
                "instruction_set": kernel.isa or None,
                "samples": kernel.samples,
            }
            for kernel in found.kernels
        ],
        "files_without_functions": dict(found.files),
    }


def _operator(each: InsideOperator) -> dict[str, object]:
    return {
        "name": each.name,
        "call": each.operator.call if each.operator else None,
        "position": each.position,
        "delegate_call": each.call,
        "samples": each.samples,
        "enough": each.enough,
        "parts": {part.value: asdict(portion) for part, portion in each.parts.items()},
        "functions": {kernel.name: kernel.samples for kernel in each.kernels},
    }
