"""Timelines in CSV files alone: what the earlier kit's tools read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import EXECUTE, RunGroup
from model_profiling.analysis.operators import DumpAnalysis, analyse_dump
from model_profiling.analysis.sources import OperatorSource, ProgramView
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import read_table
from model_profiling.core.safe_read import read_text
from model_profiling.etdump import BlockTable, EventTable
from model_profiling.etdump.reader import EXACT, TimedDump, clock_of
from model_profiling.program.category import Category
from model_profiling.report.csv_files import EXACT_CALL
from model_profiling.runs.run import Dump, origin_of_file, times_of_file
from model_profiling.runs.times import Times, why_not_comparable

_FIX = "make one with model_profiling/tools/etdump_to_csv.py --all-runs"


def check_latencies(path: Path) -> Times:
    """What the times in `path` mean. Refuses times that are certainly not latencies."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "name a timeline CSV file")
    times, said_by, _ = times_of_file(path)
    if not times.are_shown:
        raise InputError(
            f"{path.name} is from {times.origin} ({said_by} says so): its times are not latencies",
            "name a file of a timing run; `sme2prof report` shows this run's operators and kernels",
        )
    return times


def why_not_compared(before: Path, after: Path) -> str | None:
    """Why the times in two files must not be compared; files of an unknown machine are not questioned."""
    origins = [origin_of_file(path) for path in (before, after)]
    return None if any(origin.times is Times.UNKNOWN for origin in origins) else why_not_comparable(*origins)


def read_latencies(path: Path) -> tuple[float, ...]:
    """The milliseconds of each run in a timeline CSV."""
    times = [row["duration_ms"] for row in _rows(path) if row["name"] == EXECUTE]
    try:
        latencies = tuple(map(float, times))
    except (TypeError, ValueError) as problem:
        raise FormatError(f"{path} has a latency that is no number: {problem}", _FIX) from problem
    if not latencies or not all(0 <= value < math.inf for value in latencies):
        raise FormatError(f"{path} has no run, or one of an impossible length", _FIX)
    return latencies


# Files of the kit state each event's level, call and category; for files with only the eleven contract
# columns, the order of events tells.

_NEEDED = ("name", "delegate_backend", "start_us", "end_us", "duration_ms", "node_id", "run_index", "block")
_ENDINGS = ("_exec_all_runs_timeline", "_exec_run0_timeline", "_all_runs_timeline", "_timeline")
_LOADING = "Default"
"""Block of everything before the first run."""
_NOT_DELEGATED = ("", "portable", "runtime")

_Row = Mapping[str, str]


def analyse_timeline(path: Path, name: str = "") -> DumpAnalysis:
    """Analyse one timeline CSV; `name` is the experiment's."""
    rows = _rows(path)
    try:
        # Other kits write a timeline event by event; put runs together again.
        rows.sort(key=lambda row: (int(row["run_index"]), int(row["node_id"])))
        table, view = _table(path, rows), _StatedView(rows)
    except (KeyError, ValueError, TypeError, OverflowError) as problem:
        raise FormatError(f"{path} has a row that cannot be read: {problem}", _FIX) from problem
    stem = _stem(path)
    dump = Dump(path.with_name(f"{stem}.etdump"), Series(name or stem), times_of_file(path)[0])
    kinds = [row.get("kind") == EXACT_CALL for row in rows if row["block"] != _LOADING]
    exact = np.array(kinds, np.bool_)
    timed = TimedDump(table, EXACT, exact) if exact.any() else TimedDump(table, clock_of(table))
    return analyse_dump(timed, dump, view=view)


def model_id_of(path: Path) -> str:
    """The model's name in a timeline, else the file's own name."""
    return next((row["model_id"] for row in _rows(path) if row.get("model_id")), "") or _stem(path)


def _stem(path: Path) -> str:
    stem = path.stem
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    return stem


class _StatedView(ProgramView):
    """Takes what the rows themselves say about operators; all runs of a timeline say the same."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        super().__init__()
        self._backends = {row["name"]: row["delegate_backend"] for row in rows}
        self._stated = {
            (row["call"], row["position"]): (Category(row["category"]), row["kind"])
            for row in rows
            if row.get("category") and row.get("kind")
        }

    def sources(self, group: RunGroup) -> Mapping[int, OperatorSource]:
        return {
            node.column: OperatorSource(
                backend=self._backends.get(node.name, ""),
                stated=self._stated.get((str(node.call), str(node.position))),
            )
            for node in group.operators
        }


def _rows(path: Path) -> list[_Row]:
    try:
        text = read_text(path, follow=True, errors="strict")
    except UnicodeDecodeError as problem:
        raise InputError(f"cannot read {path}: {problem}", "name a timeline CSV file") from problem
    columns, rows = read_table(text, path, _FIX)
    if lacking := [column for column in _NEEDED if column not in columns]:
        raise FormatError(f"{path} is not a timeline: it has no column {', '.join(lacking)}", _FIX)
    return [row for row in rows if row.get("level") != "outside"]


def _table(path: Path, rows: Sequence[_Row]) -> EventTable:
    wanted = [row for row in rows if row["block"] != _LOADING]
    start = np.array([round(float(row["start_us"]) * 1e3) for row in wanted], np.int64)
    duration = np.array([round(float(row["duration_ms"]) * 1e6) for row in wanted], np.int64)
    run = np.array([int(row["run_index"]) for row in wanted], np.int32)
    names = tuple(dict.fromkeys(("Execute", *(row["name"] for row in wanted))))
    index = {name: place for place, name in enumerate(names)}
    order, block = np.unique(run, return_inverse=True)
    name = np.array([index[row["name"]] for row in wanted], np.int32)
    delegated = np.array([_delegated(row) for row in wanted], bool)
    events = len(wanted)
    return EventTable(
        source=str(path),
        names=names,
        blocks=BlockTable(
            name=np.zeros(len(order), np.int32),
            run_index=order.astype(np.int32),
            first_event=np.searchsorted(block, np.arange(len(order) + 1)).astype(np.int64),
        ),
        block=block.astype(np.int32),
        run_index=run,
        name=name,
        delegate_name=np.where(delegated, name, -1).astype(np.int32),
        delegate_id=np.full(events, -1, np.int32),
        chain_index=np.array([-1 if row["name"] == EXECUTE else 0 for row in wanted], np.int32),
        instruction_id=_instructions(wanted),
        start_ns=start,
        end_ns=start + duration,
        duration_ns=duration,
    )


def _delegated(row: _Row) -> bool:
    return row["delegate_backend"] not in _NOT_DELEGATED and not row["name"].endswith("_CALL")


def _instructions(rows: Sequence[_Row]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Number the calls of each run; an event comes before the call it ran in."""
    numbers = np.zeros(len(rows), np.int32)
    call, run = 0, ""
    for place, row in enumerate(rows):
        if row["run_index"] != run:
            call, run = 0, row["run_index"]
        numbers[place] = 0 if row["name"] == EXECUTE else call
        call += row["name"].endswith("_CALL")
    return numbers
