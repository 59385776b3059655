"""Analysis of timeline CSV files alone: the event table is rebuilt from their rows.

Files of the kit state each event's level, call and category; files with only the eleven contract columns
are taken apart by the order of their events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from model_profiling.analysis.attribution import EXECUTE, RunGroup
from model_profiling.analysis.categories import Category
from model_profiling.analysis.operator_clock import EXACT, EXACT_CALL, TimedDump, clock_of
from model_profiling.analysis.sources import OperatorSource, ProgramView
from model_profiling.analysis.summary import DumpAnalysis, analyse_dump
from model_profiling.csv_cells import read_table
from model_profiling.errors import FormatError, InputError
from model_profiling.etdump import AllocationTable, BlockTable, DebugTable, EventTable
from model_profiling.reading import read_text
from model_profiling.run.opened import Dump, times_of_file
from model_profiling.run.series import Series

_NEEDED = ("name", "delegate_backend", "start_us", "end_us", "duration_ms", "node_id", "run_index", "block")
_ENDINGS = ("_exec_all_runs_timeline", "_exec_run0_timeline", "_all_runs_timeline", "_timeline")
_LOADING = "Default"
"""The block of what came before the first run."""
_NOT_DELEGATED = ("", "portable", "runtime")

_Row = Mapping[str, str]


def analyse_timeline(path: Path, name: str = "") -> DumpAnalysis:
    """Analyse one timeline CSV; `name` stands for the experiment."""
    rows = _rows(path)
    try:
        # Other kits write a timeline event by event; runs are put back together here.
        rows.sort(key=lambda row: (int(row["run_index"]), int(row["node_id"])))
        table, view = _table(path, rows), _StatedView(rows)
    except (KeyError, ValueError, TypeError, OverflowError) as problem:
        raise FormatError(f"{path} holds a row that cannot be read: {problem}", "make it again") from problem
    stem = _stem(path)
    dump = Dump(path.with_name(f"{stem}.etdump"), Series(name or stem), times_of_file(path)[0])
    return analyse_dump(_timed(table, rows), dump, view=view)


def model_id_of(path: Path) -> str:
    """What a timeline says its model is called; the file's own name where it says nothing."""
    return next((row["model_id"] for row in _rows(path) if row.get("model_id")), "") or _stem(path)


def _stem(path: Path) -> str:
    stem = path.stem
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    return stem


def _timed(table: EventTable, rows: Sequence[_Row]) -> TimedDump:
    """Which delegate calls have operators with their true times, as the rows say."""
    kinds = [row.get("kind") == EXACT_CALL for row in rows if row["block"] != _LOADING]
    exact = np.array(kinds, np.bool_)
    return TimedDump(table, EXACT, exact) if exact.any() else TimedDump(table, clock_of(table))


class _StatedView(ProgramView):
    """What the rows themselves say about operators; all runs of a timeline say the same."""

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
    fix = "make one with model_profiling/tools/etdump_to_csv.py --all-runs"
    try:
        text = read_text(path, follow=True, errors="strict")
    except UnicodeDecodeError as problem:
        raise InputError(f"cannot read {path}: {problem}", "name a timeline CSV file") from problem
    columns, rows = read_table(text, path, fix)
    if lacking := [column for column in _NEEDED if column not in columns]:
        raise FormatError(f"{path} is not a timeline: it lacks {', '.join(lacking)}", fix)
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
    none32, none64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
    events = len(wanted)
    return EventTable(
        source=str(path),
        version=0,
        names=names,
        blocks=BlockTable(
            name=np.zeros(len(order), np.int32),
            run_index=order.astype(np.int32),
            bundled_input=np.full(len(order), -1, np.int32),
            first_event=np.searchsorted(block, np.arange(len(order) + 1)).astype(np.int64),
        ),
        block=block.astype(np.int32),
        run_index=run,
        name=name,
        runtime_name=np.where(delegated, -1, name).astype(np.int32),
        delegate_name=np.where(delegated, name, -1).astype(np.int32),
        delegate_id=np.full(events, -1, np.int32),
        chain_index=np.array([-1 if row["name"] == EXECUTE else 0 for row in wanted], np.int32),
        instruction_id=_instructions(wanted),
        start_ns=start,
        end_ns=start + duration,
        duration_ns=duration,
        metadata=np.full(events, -1, np.int32),
        metadata_values=(),
        allocations=AllocationTable(none32, none32, none64),
        debug=DebugTable(none32, none32, none64, none32, none32, none32.astype(bool), none32.astype(np.int8)),
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
