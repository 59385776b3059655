"""One typical run of each series as it went: execute holds calls, calls hold operators.

    {texts, categories: [[name, colour]...],
     views: [{label, file, run, events: [[name, category, depth, start ns, duration ns]...], note}...]}

Names are numbers of texts; a category is -1 for what is no operator. The run is of the first dump, so that
its timeline file holds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.attribution import RunGroup
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.charts.drawing import PARTS
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer
from model_profiling.report.explorer.fitting import TIMELINE_BYTES, Data, Texts, fit
from model_profiling.run import names
from model_profiling.wording import milliseconds, percent

_CALLS = {
    "delegate": "delegate call",
    "operator": "operator call",
    "move": "move",
    "jump": "jump",
    "free": "free",
}


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    category: str
    depth: int
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class _Run:
    series: SeriesAnalysis
    number: int
    """As the timeline file counts it."""
    events: tuple[_Event, ...]
    """In the order they start."""

    @property
    def file(self) -> str:
        dump = self.series.first
        return f"{dump.path.parent.name}/{dump.stem}{names.TIMELINE_CSV}"


def explore_timeline(data: ReportData) -> list[Block]:
    """Nothing where times mean nothing."""
    if data.analysis is None or not data.times.are_shown:
        return []
    runs = [_typical(series) for series in data.analysis.series if series.times.are_shown]
    if not runs:
        return []
    most = max(len(run.events) for run in runs)
    shown = fit(lambda limit: _data(runs, limit), most, TIMELINE_BYTES)
    file = f"*{names.TIMELINE_CSV}"
    return [Explorer("timeline", "One run from start to end", shown, (), file)]


def _typical(series: SeriesAnalysis) -> _Run:
    """The run of the first dump that is nearest to the median of all."""
    dump = series.first
    e2e = dump.attribution.e2e_ns()
    number = int(np.argmin(np.abs(e2e - series.latency.median * 1e6)))
    for group, owners in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        rows = np.flatnonzero(group.runs == number)
        if len(rows):
            categories = [
                dump.operators[owner].category.value if owner >= 0 else "" for owner in owners.tolist()
            ]
            found = [dump.operators[owner].name if owner >= 0 else "" for owner in owners.tolist()]
            return _Run(series, number, tuple(_events(group, int(rows[0]), found, categories)))
    raise AssertionError("every run is in a group")


def _events(group: RunGroup, row: int, operators: Sequence[str], categories: Sequence[str]) -> list[_Event]:
    start, duration = group.start_ns[row].tolist(), group.duration_ns[row].tolist()
    zero = start[-1]
    depths: dict[int, int] = {-1: -1}

    def depth(column: int) -> int:
        if column not in depths:
            depths[column] = depth(group.nodes[column].parent) + 1
        return depths[column]

    found = [
        _Event(
            operators[node.column] or _CALLS.get(node.call_kind, node.name)
            if node.level == "call"
            else node.name,
            categories[node.column],
            depth(node.column),
            start[node.column] - zero,
            duration[node.column],
        )
        for node in group.nodes
    ]
    return sorted(found, key=lambda event: (event.start_ns, event.depth))


def _data(runs: Sequence[_Run], limit: int) -> Data:
    texts = Texts()
    return {
        "categories": [list(part) for part in PARTS.items()],
        "views": [_view(run, limit, texts) for run in runs],
        "texts": texts.all,
    }


def _view(run: _Run, limit: int, texts: Texts) -> dict[str, object]:
    kept = set(sorted(range(len(run.events)), key=lambda place: -run.events[place].duration_ns)[:limit])
    parts = list(PARTS)
    whole = max(event.duration_ns for event in run.events)
    return {
        "label": run.series.name,
        "file": run.file,
        "run": run.number,
        "lead": (
            f"Run {run.number} of {run.file}: {milliseconds(whole / 1e6)} ms with the tracer on, nearest to "
            "the median of all."
        ),
        "events": [
            [
                texts.number(event.name),
                parts.index(event.category) if event.category else -1,
                event.depth,
                event.start_ns,
                event.duration_ns,
            ]
            for place, event in enumerate(run.events)
            if place in kept
        ],
        "note": _note(run, kept),
    }


def _note(run: _Run, kept: set[int]) -> str:
    left = [event for place, event in enumerate(run.events) if place not in kept]
    if not left:
        return ""
    whole = max(event.duration_ns for event in run.events) or 1
    longest = sum(event.duration_ns for event in left if event.category) / whole
    return (
        f"To keep this page small, the {len(left):,} shortest of {len(run.events):,} events are not drawn; "
        f"their operators take {percent(longest)} of the run. All are in {run.file}."
    )
