"""Every operator of a run, to sort, search and open.

    {texts: [text...], facts: [label...], series: [name...],
     views: [{label, place, headers, numbers, rows: [[text number...]...],
              inside: [[[series, operator]...]...], note}...],
     operators: [{operator: [text number or -1 for each fact]}... for each series],
     code: [{operator: text number}... for each series]}

`inside` names the operators that a row opens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from model_profiling.analysis.matching import kernels_for
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import Slice, slices_of
from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds, percent
from model_profiling.facts import OPERATOR_FACTS
from model_profiling.report import breakdown
from model_profiling.report.charts import PARTS
from model_profiling.report.csv_files import operator_row
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer, ShownTable, Text, make_table, plain

_ROWS, _EVENTS = 2_000, 4_000
"""The most on a page, divided among its views: with charts, tables and scripts it stays within 2.5 MB."""
_SHOWN = 10
"""Operators on a page without scripts."""
_LONGEST = 400
"""Characters of a text that are kept; no real name is longer."""


class Texts(dict[str, int]):
    """Texts of a page in the order they were first used, each with its number."""

    def number(self, text: str) -> int:
        return self.setdefault(f"{text[:_LONGEST]} ..." if len(text) > _LONGEST else text, len(self))


_SME_KERNELS = "SME kernels of its type"
FACTS = (*(fact.called for fact in OPERATOR_FACTS if fact.name != "source_code"), _SME_KERNELS)
"""What a row opens; the code stands below it."""


# Every operator, of pairs side by side and of single series.


def pair_headers(before: str, after: str) -> tuple[str, ...]:
    return f"{before} ms", f"{after} ms", f"share {after}", "speedup", "verdict"


def pair_figures(pairing: Pairing, pair: OperatorPair, *, timed: bool = True) -> tuple[str, ...]:
    before, after = breakdown.break_down(pairing.baseline), breakdown.break_down(pairing.candidate)
    ours = before.of(pair.baseline).cells[0] if timed and pair.baseline else MISSING
    theirs = after.of(pair.candidate).cells if timed and pair.candidate else (MISSING, MISSING)
    ratio = breakdown.change_cells(ours, theirs[0], pair.ratio, pair.speedup)[1] if timed else MISSING
    return ours, *theirs, ratio, breakdown.verdict_of(pair.speedup)


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """An operator, or one before and after, as every table of operators shows it."""

    cells: tuple[Text, ...]
    inside: tuple[tuple[SeriesAnalysis, Operator], ...]
    weight: float


@dataclass(frozen=True, slots=True)
class OperatorView:
    """A pair, or a single series if `pairing` is None."""

    label: str
    series: tuple[SeriesAnalysis, ...]
    pairing: Pairing | None
    timed: bool
    """Whether to show times; if not, work is shown."""
    place: str
    """Its place in `analysis_summary.json`, such as `pairs/0`."""

    @property
    def headers(self) -> tuple[str, ...]:
        figures: tuple[str, ...] = ("million operations", "data")
        if self.timed:
            figures = ("ms", "share") if self.pairing is None else pair_headers(*self.pairing.sides)
        return (*breakdown.NAME_HEADERS, *figures, "SME2", "variant", *breakdown.PLACE_HEADERS)

    @property
    def numbers(self) -> tuple[int, ...]:
        return (3, 4, 5, 6) if self.timed and self.pairing else (3, 4)

    def lines(self, sme2_of: Callable[[SeriesAnalysis], Mapping[int, str]]) -> list[OperatorLine]:
        """Return every operator, the longest, or with most arithmetic, first."""
        sme2 = [sme2_of(series) for series in self.series]
        found = self._pairs(self.pairing, sme2) if self.pairing else self._operators(sme2[0])
        return sorted(found, key=lambda line: -line.weight)

    def _operators(self, sme2: Mapping[int, str]) -> Iterator[OperatorLine]:
        (series,) = self.series
        for operator in series.operators:
            figures = (
                breakdown.break_down(series).of([operator]).cells
                if self.timed
                else breakdown.work_cells((operator,))
            )
            weight = operator.typical_ms if self.timed else operator.source.flops or 0
            variant = sme2[series.place(operator)], operator.family or MISSING
            cells = (*breakdown.name_cells(operator), *figures, *variant, *breakdown.place_cells(operator))
            yield OperatorLine(cells, ((series, operator),), weight)

    def _pairs(self, pairing: Pairing, sme2: Sequence[Mapping[int, str]]) -> Iterator[OperatorLine]:
        for pair in pairing.operators:
            figures = pair_figures(pairing, pair) if self.timed else breakdown.work_cells((pair.main,))
            timed, flops = max(pair.candidate_ms, pair.baseline_ms), pair.main.source.flops or 0
            variant = breakdown.sme2_cell(pair, pairing, *sme2), breakdown.variant_cell(pair)
            cells = (*breakdown.name_cells(pair.main), *figures, *variant, *breakdown.place_cells(pair.main))
            sides = zip(self.series, (pair.baseline, pair.candidate), strict=True)
            inside = tuple((series, operator) for series, side in sides for operator in side)
            yield OperatorLine(cells, inside, timed if self.timed else flops)


def views_of(data: ReportData) -> list[OperatorView]:
    """Return every pair that may be shown side by side, then every series in none of them."""
    if data.analysis is None:
        return []
    timed = breakdown.compared_pairs(data)
    pairings = [(pair, pairing, True) for pair, pairing in timed]
    if not data.times.are_shown:
        pairings = [(pair, pair.pairing, False) for pair in data.pairs if pair.pairing is not None]
    sides = [pairing.sides for _, pairing, _ in pairings]
    views = [
        OperatorView(
            f"{f'{pair.label}: ' if sides.count(pairing.sides) > 1 else ''}{' → '.join(pairing.sides)}",
            (pairing.baseline, pairing.candidate),
            pairing,
            shown,
            f"pairs/{data.pairs.index(pair)}",
        )
        for pair, pairing, shown in pairings
    ]
    seen = {series.series for view in views for series in view.series}
    alone = [
        OperatorView(series.label, (series,), None, series.times.are_shown, f"series/{place}")
        for place, series in enumerate(data.analysis.series)
        if series.series not in seen
    ]
    return views + sorted(alone, key=lambda view: data.run.spoken_order(view.series[0].series))


# Data is kept small: texts are written once and named by number, and what is too much is left out.


def explore_operators(data: ReportData) -> list[Block]:
    """Return nothing if there are no dumps."""
    views = views_of(data)
    if not views:
        return []
    found = _Explored(data)
    limit = _ROWS // len(views) + 1
    lines = [view.lines(data.sme2_of) for view in views]
    shown = [found.view(view, rows, limit) for view, rows in zip(views, lines, strict=True)]
    content = {
        "texts": list(found.texts),
        "facts": FACTS,
        "series": [series.name for series in found.series],
        "views": shown,
        "operators": found.operators,
        "code": found.code,
    }
    return [Explorer("operators", "", content, (_longest(views[0], lines[0]),), names.ANALYSIS)]


def _longest(view: OperatorView, lines: Sequence[OperatorLine]) -> ShownTable:
    """The longest operators for pages without scripts, then all others as one: the table adds up."""
    rows = [line.cells for line in lines[:_SHOWN]]
    if view.timed and (rest := lines[_SHOWN:]):
        sides = [
            breakdown.break_down(series).sum_of(
                operator for line in rest for owner, operator in line.inside if owner is series
            )
            for series in view.series
        ]
        figures = (*(side.cells[0] for side in sides), sides[-1].cells[1])
        row = (f"{len(rest)} more", MISSING, MISSING, *figures)
        rows.append((*row, *(MISSING,) * (len(view.headers) - len(row))))
    return make_table(view.headers, rows, numbers=view.numbers)


class _Explored:
    """What the page has so far, and where an operator's facts come from."""

    def __init__(self, data: ReportData) -> None:
        self._data = data
        kernels = data.evidence[0].kernels if data.evidence else ()
        self._uses = {found.series: found.uses for found in kernels}
        self.texts = Texts()
        self.series: list[SeriesAnalysis] = []
        self.operators: list[dict[str, list[int]]] = []
        self.code: list[dict[str, int]] = []

    def view(self, view: OperatorView, rows: Sequence[OperatorLine], limit: int) -> dict[str, object]:
        note = ""
        if limit < len(rows):
            left = percent(sum(row.weight for row in rows[limit:]) / (sum(row.weight for row in rows) or 1.0))
            note = (
                f"To keep this page small, the {limit:,} {'longest' if view.timed else 'largest'} of "
                f"{len(rows):,} are listed; the rest is {left} of the whole. All are in {names.ANALYSIS}."
            )
        return {
            "label": view.label,
            "place": view.place,
            "headers": view.headers,
            "numbers": view.numbers,
            "rows": [[self.texts.number(plain(cell)) for cell in row.cells] for row in rows[:limit]],
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
            row = operator_row(series, operator, self._data.sme2_of(series))
            timed = series.times.are_shown
            facts = {fact.called: fact.text(row) for fact in OPERATOR_FACTS if timed or not fact.timed}
            uses = self._uses.get(series.series, ())
            facts[_SME_KERNELS] = ", ".join(kernels_for(operator, uses))
            cells = (facts.get(name, "") for name in FACTS)
            self.operators[which][str(place)] = [self.texts.number(cell) if cell else -1 for cell in cells]
            if code := operator.source.place.code:
                self.code[which][str(place)] = self.texts.number(code)
        return which, place


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


def explore_timeline(data: ReportData) -> list[Block]:
    """Return nothing where times mean nothing."""
    if data.analysis is None or not data.times.are_shown:
        return []
    every = [series for series in data.analysis.series if series.times.are_shown]
    if not every:
        return []
    texts, limit = Texts(), _EVENTS // len(every) + 1
    views = [_timeline_view(series, limit, texts) for series in every]
    shown = {"categories": [list(part) for part in PARTS.items()], "views": views, "texts": list(texts)}
    return [Explorer("timeline", "One run from start to end", shown, (), f"*{names.TIMELINE_CSV}")]


def _event(slice_: Slice, zero_ns: int) -> _Event:
    node, operator, depth, start = slice_.node, slice_.operator, slice_.depth, slice_.begin_ns - zero_ns
    name = _CALLS.get(node.call_kind, node.name) if node.level == "call" else node.name
    if operator is None:
        return _Event(name, _EVENT, depth, start, slice_.duration_ns)
    name = operator.name if node.level == "call" else name
    category = list(PARTS).index(operator.category.value)
    return _Event(name, category, depth + 1, start, slice_.duration_ns, operator.place, operator.call)


def _modules(events: Sequence[_Event]) -> Iterator[_Event]:
    """Yield a bar for each module, around its operators that ran one after another."""
    operators = sorted((each for each in events if each.module), key=lambda each: each.start_ns)
    alike = groupby(operators, key=lambda each: (each.module, each.depth, each.call))
    for (module, depth, _), members in alike:
        inside = list(members)
        start, end = inside[0].start_ns, max(each.start_ns + each.duration_ns for each in inside)
        yield _Event(module, _MODULE, depth - 1, start, end - start)


def _timeline_view(series: SeriesAnalysis, limit: int, texts: Texts) -> dict[str, object]:
    # The run of the first dump that is nearest to the median of all.
    dump = series.first
    number = int(np.argmin(np.abs(dump.attribution.e2e_ns() - series.latency.median * 1e6)))
    slices = list(slices_of(dump, number))
    events = [_event(slice_, slices[0].begin_ns) for slice_ in slices]
    events = sorted((*events, *_modules(events)), key=lambda event: (event.start_ns, event.depth))
    by_length = sorted(events, key=lambda event: -event.duration_ns)
    drawn = {id(event) for event in by_length[:limit]}
    whole = by_length[0].duration_ns
    file = f"{dump.path.parent.name}/{dump.stem}{names.TIMELINE_CSV}"
    note = ""
    if left := by_length[limit:]:
        share = sum(event.duration_ns for event in left if event.module) / (whole or 1)
        note = (
            f"To keep this page small, the {len(left):,} shortest of {len(events):,} events are not "
            f"drawn; their operators take {percent(share)} of the run. All are in {file}."
        )
    return {
        "label": series.name,
        "file": file,
        "run": number,
        "lead": (
            f"Run {number} of {file}, the most typical one in this file: "
            f"{milliseconds(whole / 1e6)} ms with the tracer on."
        ),
        "events": [
            [texts.number(event.name), event.category, event.depth, event.start_ns, event.duration_ns]
            for event in events
            if id(event) in drawn
        ],
        "note": note,
    }
