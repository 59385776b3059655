"""Every operator of a run, to sort, search and open.

    {texts: [text...], facts: [label...], series: [name...],
     views: [{label, place, headers, numbers, rows: [[text number...]...],
              inside: [[[series, operator]...]...], note}...],
     operators: [{operator: [text number or -1 for each fact]}... for each series],
     code: [{operator: text number}... for each series]}

`inside` names the operators that a row opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from model_profiling.analysis.attribution import RunGroup
from model_profiling.analysis.matching import kernels_for
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, percent
from model_profiling.facts.operators import OPERATOR_FACTS, OperatorRow
from model_profiling.report import breakdown
from model_profiling.report.charts import PARTS
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer, plain

# Data is kept small: texts are written once and named by number, and what is too much is left out.

_ROWS, _EVENTS = 2_000, 4_000
"""The most on a page, divided among its views: with charts, tables and scripts it stays within 2.5 MB."""
_LONGEST = 400
"""Characters of a text that are kept; no real name is longer."""


class Texts:
    def __init__(self) -> None:
        self._place: dict[str, int] = {}

    def number(self, text: str) -> int:
        if len(text) > _LONGEST:
            text = f"{text[:_LONGEST]} ..."
        return self._place.setdefault(text, len(self._place))

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self.number(text) for text in texts]

    @property
    def all(self) -> list[str]:
        return list(self._place)


_SME_KERNELS = "SME kernels of its type"
FACTS = (*(fact.called for fact in OPERATOR_FACTS if fact.name != "source_code"), _SME_KERNELS)
"""What a row opens; the code stands below it."""


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[str, ...]
    inside: tuple[tuple[SeriesAnalysis, Operator], ...]
    weight: float
    """Rows are sorted by it: the longest, or most arithmetic, first."""


def explore_operators(data: ReportData, instead: Sequence[Block]) -> list[Block]:
    """The explorer, with `instead` for pages without scripts; only `instead` if there are no dumps."""
    views = breakdown.views_of(data)
    if not views:
        return list(instead)
    found = _Explored(data)
    limit = _ROWS // len(views) + 1
    shown = [found.view(view, limit) for view in views]
    content = {
        "texts": found.texts.all,
        "facts": FACTS,
        "series": [series.name for series in found.series],
        "views": shown,
        "operators": found.operators,
        "code": found.code,
    }
    return [Explorer("operators", "", content, tuple(instead), names.ANALYSIS)]


def _figures(view: breakdown.View) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if not view.timed:
        return ("million operations", "data"), (3, 4)
    if view.pairing is None:
        return ("ms", "share"), (3, 4)
    first, second = view.pairing.sides
    return (f"{first} ms", f"{second} ms", f"share {second}", "speedup", "verdict"), (3, 4, 5, 6)


def _rows(view: breakdown.View, known: _Explored) -> Iterator[_Row]:
    shown = [breakdown.break_down(series) for series in view.series] if view.timed else []
    if view.pairing is None:
        (series,) = view.series
        for operator in series.operators:
            spent = shown[0].of([operator]).cells if shown else breakdown.work_cells((operator,))
            size = operator.typical_ms if shown else operator.source.flops or 0
            sme2 = known.sme2(series)[series.place(operator)]
            variant = operator.family or MISSING
            yield _Row(_cells(operator, spent, sme2, variant), ((series, operator),), size)
        return
    for pair in view.pairing.operators:
        figures: tuple[str, ...] = breakdown.work_cells((pair.main,))
        weight: float = pair.main.source.flops or 0
        if shown:
            before, after = shown
            ours = before.of(pair.baseline).cells[0] if pair.baseline else MISSING
            theirs = after.of(pair.candidate).cells if pair.candidate else (MISSING, MISSING)
            ratio = breakdown.change_cells(ours, theirs[0], pair.ratio, pair.speedup)[1]
            figures = (ours, *theirs, ratio, breakdown.verdict_of(pair.speedup))
            weight = max(pair.candidate_ms, pair.baseline_ms)
        sides = zip(view.series, (pair.baseline, pair.candidate), strict=True)
        inside = tuple((series, operator) for series, side in sides for operator in side)
        sme2 = breakdown.sme2_cell(pair, view.pairing, *map(known.sme2, view.series))
        variant = breakdown.variant_cell(pair)
        yield _Row(_cells(pair.main, figures, sme2, variant), inside, weight)


def _cells(operator: Operator, figures: Sequence[str], sme2: str, variant: str) -> tuple[str, ...]:
    named = plain(breakdown.layer_cell(operator)), operator.name, operator.category.value
    return *named, *figures, sme2, variant, *breakdown.place_cells(operator)


class _Explored:
    """What the page has so far, and where an operator's facts come from."""

    def __init__(self, data: ReportData) -> None:
        self._data = data
        kernels = data.evidence[0].kernels if data.evidence else ()
        self._uses = {found.series: found.uses for found in kernels}
        self._sme2: dict[int, Mapping[int, str]] = {}
        self.texts = Texts()
        self.series: list[SeriesAnalysis] = []
        self.operators: list[dict[str, list[int]]] = []
        self.code: list[dict[str, int]] = []

    def view(self, view: breakdown.View, limit: int) -> dict[str, object]:
        rows = sorted(_rows(view, self), key=lambda row: -row.weight)
        note = ""
        if limit < len(rows):
            left = percent(sum(row.weight for row in rows[limit:]) / (sum(row.weight for row in rows) or 1.0))
            note = (
                f"To keep this page small, the {limit:,} {'longest' if view.timed else 'largest'} of "
                f"{len(rows):,} are listed; the rest is {left} of the whole. All are in {names.ANALYSIS}."
            )
        figures, numbers = _figures(view)
        return {
            "label": view.label,
            "place": view.place,
            "headers": (*breakdown.NAME_HEADERS, *figures, "SME2", "variant", *breakdown.PLACE_HEADERS),
            "numbers": numbers,
            "rows": [self.texts.numbers(row.cells) for row in rows[:limit]],
            "inside": [[self._opened(*member) for member in row.inside] for row in rows[:limit]],
            "note": note,
        }

    def _opened(self, series: SeriesAnalysis, operator: Operator) -> tuple[int, int]:
        """Keep the facts of an operator, for `inside`."""
        which = next((place for place, one in enumerate(self.series) if one is series), len(self.series))
        if which == len(self.series):
            self.series.append(series)
            self.operators.append({})
            self.code.append({})
        place = series.place(operator)
        if str(place) not in self.operators[which]:
            facts = self._facts(series, operator)
            cells = (facts.get(name, "") for name in FACTS)
            self.operators[which][str(place)] = [self.texts.number(cell) if cell else -1 for cell in cells]
            if code := operator.source.place.code:
                self.code[which][str(place)] = self.texts.number(code)
        return which, place

    def _facts(self, series: SeriesAnalysis, operator: Operator) -> dict[str, str]:
        share = series.spent_by([operator]).share
        row = OperatorRow(operator, operator.typical_ms, share, self.sme2(series)[series.place(operator)])
        timed = series.times.are_shown
        facts = {fact.called: fact.text(row) for fact in OPERATOR_FACTS if timed or not fact.timed}
        return facts | {_SME_KERNELS: ", ".join(kernels_for(operator, self._uses.get(series.series, ())))}

    def sme2(self, series: SeriesAnalysis) -> Mapping[int, str]:
        if id(series) not in self._sme2:
            self._sme2[id(series)] = self._data.sme2_of(series)
        return self._sme2[id(series)]


# One typical run of each series over time: execute holds calls, calls hold modules, modules hold operators.
#     {texts, categories: [[name, colour]...],
#      views: [{label, file, run, lead, note,
#               events: [[name, category, depth, start ns, duration ns]...]}...]}
# Names are indices into texts; the category is -1 for what is not an operator, -2 for a module. The run is of
# the first dump, so that its timeline file holds the same events, apart from modules.


_CALLS = {
    "delegate": "delegate call", "operator": "operator call", "move": "move", "jump": "jump", "free": "free",
}  # fmt: skip
_EVENT, _MODULE = -1, -2


@dataclass(frozen=True, slots=True)
class _Event:
    name: str
    category: int
    depth: int
    start_ns: int
    duration_ns: int
    module: str = ""
    call: int = -1
    """Of an operator, as its module."""


@dataclass(frozen=True, slots=True)
class _Run:
    series: SeriesAnalysis
    number: int
    """As the timeline file counts it."""
    events: Sequence[_Event]
    """Ordered by start."""


def explore_timeline(data: ReportData) -> list[Block]:
    """Return nothing where times mean nothing."""
    if data.analysis is None or not data.times.are_shown:
        return []
    runs = [_typical(series) for series in data.analysis.series if series.times.are_shown]
    if not runs:
        return []
    texts, limit = Texts(), _EVENTS // len(runs) + 1
    views = [_timeline_view(run, limit, texts) for run in runs]
    shown = {"categories": [list(part) for part in PARTS.items()], "views": views, "texts": texts.all}
    return [Explorer("timeline", "One run from start to end", shown, (), f"*{names.TIMELINE_CSV}")]


def _typical(series: SeriesAnalysis) -> _Run:
    """The run of the first dump that is nearest to the median of all."""
    dump = series.first
    number = int(np.argmin(np.abs(dump.attribution.e2e_ns() - series.latency.median * 1e6)))
    for group, owners in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        rows = np.flatnonzero(group.runs == number)
        if len(rows):
            operators = [dump.operators[owner] if owner >= 0 else None for owner in owners.tolist()]
            events = [*_events(group, int(rows[0]), operators)]
            events += _modules(events)
            return _Run(series, number, sorted(events, key=lambda event: (event.start_ns, event.depth)))
    raise AssertionError("every run is in a group")


def _events(group: RunGroup, row: int, operators: Sequence[Operator | None]) -> Iterator[_Event]:
    start, duration, parts = group.start_ns[row].tolist(), group.duration_ns[row].tolist(), list(PARTS)
    for node in group.nodes:
        operator, name, depth, above = operators[node.column], node.name, 0, node.parent
        if node.level == "call":
            name = operator.name if operator else _CALLS.get(node.call_kind, node.name)
        while above >= 0:
            depth, above = depth + 1, group.nodes[above].parent
        begin, took = start[node.column] - start[-1], duration[node.column]
        if operator is None:
            yield _Event(name, _EVENT, depth, begin, took)
        else:  # below its module
            category = parts.index(operator.category.value)
            yield _Event(name, category, depth + 1, begin, took, operator.place, operator.call)


def _modules(events: Sequence[_Event]) -> Iterator[_Event]:
    """Yield a bar for each module, around its operators that ran one after another."""
    operators = sorted((each for each in events if each.module), key=lambda each: each.start_ns)
    alike = groupby(operators, key=lambda each: (each.module, each.depth, each.call))
    for (module, depth, _), members in alike:
        inside = list(members)
        start, end = inside[0].start_ns, max(each.start_ns + each.duration_ns for each in inside)
        yield _Event(module, _MODULE, depth - 1, start, end - start)


def _timeline_view(run: _Run, limit: int, texts: Texts) -> dict[str, object]:
    by_length = sorted(run.events, key=lambda event: -event.duration_ns)
    drawn = {id(event) for event in by_length[:limit]}
    whole, dump = by_length[0].duration_ns, run.series.first
    file = f"{dump.path.parent.name}/{dump.stem}{names.TIMELINE_CSV}"
    note = ""
    if left := by_length[limit:]:
        share = sum(event.duration_ns for event in left if event.module) / (whole or 1)
        note = (
            f"To keep this page small, the {len(left):,} shortest of {len(run.events):,} events are not "
            f"drawn; their operators take {percent(share)} of the run. All are in {file}."
        )
    return {
        "label": run.series.name,
        "file": file,
        "run": run.number,
        "lead": (
            f"Run {run.number} of {file}, the most typical one in this file: "
            f"{milliseconds(whole / 1e6)} ms with the tracer on."
        ),
        "events": [
            [texts.number(event.name), event.category, event.depth, event.start_ns, event.duration_ns]
            for event in run.events
            if id(event) in drawn
        ],
        "note": note,
    }
