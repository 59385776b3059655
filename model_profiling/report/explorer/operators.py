"""Every operator of a run, to sort, search and open.

    {texts: [text...], facts: [label...], series: [name...],
     views: [{label, place, headers, numbers, rows: [[text number...]...],
              inside: [[[series, operator]...]...], note}...],
     operators: [{operator: [text number or -1 for each fact]}... for each series],
     code: [{operator: text number}... for each series]}

`inside` names the operators that a row opens; one that is in no `operators` has no more to show than its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from model_profiling.analysis.matching import match_proven, matrix_operators, matrix_operators_by_key
from model_profiling.analysis.operator_proof import kernels_for
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import MISSING, milliseconds, percent, speedup
from model_profiling.facts.fact import shape_text
from model_profiling.facts.operators import OperatorRow, facts_for
from model_profiling.report.breakdown import break_down, verdict_of
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer, plain
from model_profiling.report.html.page import json_size
from model_profiling.report.views import (
    View,
    became,
    line_cell,
    module_cell,
    precision_cell,
    views_of,
    work_cells,
)
from model_profiling.run import names

# How data is kept small: texts are written once and named by number, and what is too much is left out.

OPERATORS_BYTES, MODULES_BYTES, TIMELINE_BYTES = 800_000, 150_000, 180_000
"""The most that each explorer may take of a page; a page of 2.5 MB also holds the script that draws charts,
the charts and the tables."""
_LONGEST = 400
"""Characters of a text that are kept; a name longer than that is nobody's."""
_NEARLY = 0.95

Data = Mapping[str, object]


class Texts:
    """Texts of a page's data, each once."""

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


def fit(make: Callable[[int], Data], count: int, most: int) -> Data:
    """`make(limit)` with a limit up to `count` that takes no more than `most` bytes and nearly as many; the
    least there is where even that takes more."""
    best, low, high = make(1), 1, count
    whole = make(count)
    small, large = json_size(best), json_size(whole)
    if large <= most:
        return whole
    while high - low > 1 and small < _NEARLY * most:
        # Data grows about evenly, so that the next guess is nearly right.
        guess = low + int((high - low) * (_NEARLY * most + most - 2 * small) / 2 / (large - small))
        guess = min(max(guess, low + 1), high - 1)
        data = make(guess)
        taken = json_size(data)
        if taken <= most:
            best, low, small = data, guess, taken
        else:
            high, large = guess, taken
    return best


_SPREAD = "runs", "median ms", "10% to 90% ms", "99% ms", "shortest to longest ms", "spread"
_IN_PAGE = facts_for("page")
FACTS = (
    *_SPREAD, *(fact.called for fact in _IN_PAGE), "window", "kernel path", "SME2", "SME kernels of its type",
    "where in the run",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[str, ...]
    inside: tuple[tuple[SeriesAnalysis, Operator], ...]
    weight: float
    """What rows are ordered by: the longest, or most arithmetic, first."""


@dataclass(frozen=True, slots=True)
class _Listed:
    view: View
    headers: tuple[str, ...]
    numbers: tuple[int, ...]
    rows: tuple[_Row, ...]


def explore_operators(data: ReportData, instead: Sequence[Block]) -> list[Block]:
    """The explorer with `instead` for pages that cannot be opened; just that where there are no dumps."""
    listed = [_listed(view) for view in views_of(data)]
    if not listed:
        return list(instead)
    known = _Known(data)
    rows = max(len(found.rows) for found in listed)
    # What a row opens is left out before the row itself is.
    found = fit(
        lambda most: _data(listed, known, min(most, rows), max(most - rows, 1)), 2 * rows, OPERATORS_BYTES
    )
    return [Explorer("operators", "", found, tuple(instead), names.ANALYSIS)]


def _listed(view: View) -> _Listed:
    if view.pairing is not None and view.timed:
        headers: tuple[str, ...] = (
            "operator", "category", "before ms", "after ms", "share after", "speedup", "verdict", "kernel",
            "precision", "module", "source",
        )  # fmt: skip
        return _Listed(view, headers, (2, 3, 4, 5), _ordered(_changes(view.pairing)))
    if view.timed:
        headers = ("operator", "category", "ms", "share", "kernel", "precision", "module", "source")
        return _Listed(view, headers, (2, 3), _ordered(_times(view.series[0])))
    headers = (
        "operator", "category", "million operations", "data", "kernel", "precision", "module", "source",
    )  # fmt: skip
    rows = _kernels(view.pairing) if view.pairing is not None else _work(view.series[0])
    return _Listed(view, headers, (2, 3), _ordered(rows))


def _ordered(rows: Iterator[_Row]) -> tuple[_Row, ...]:
    return tuple(sorted(rows, key=lambda row: -row.weight))


def _changes(pairing: Pairing) -> Iterator[_Row]:
    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    for found in pairing.operators:
        cells = (
            found.main.name,
            found.category.value,
            before.of(found.baseline).cells[0] if found.baseline else MISSING,
            *(after.of(found.candidate).cells if found.candidate else (MISSING, MISSING)),
            speedup(found.ratio),
            verdict_of(found.speedup),
            became(found),
            *_place(found.main),
        )
        yield _Row(cells, _members(pairing, found), max(found.candidate_ms, found.baseline_ms))


def _kernels(pairing: Pairing) -> Iterator[_Row]:
    for found in pairing.operators:
        main = found.main
        cells = (main.name, main.category.value, *work_cells((main,)), became(found))
        yield _Row((*cells, *_place(main)), _members(pairing, found), main.source.flops or 0)


def _members(pairing: Pairing, found: OperatorPair) -> tuple[tuple[SeriesAnalysis, Operator], ...]:
    return (
        *((pairing.baseline, operator) for operator in found.baseline),
        *((pairing.candidate, operator) for operator in found.candidate),
    )


def _times(series: SeriesAnalysis) -> Iterator[_Row]:
    shown = break_down(series)
    for operator in series.operators:
        cells = (operator.name, operator.category.value, *shown.of([operator]).cells, _path(operator))
        yield _Row((*cells, *_place(operator)), ((series, operator),), operator.typical_ms)


def _work(series: SeriesAnalysis) -> Iterator[_Row]:
    for operator in series.operators:
        cells = (operator.name, operator.category.value, *work_cells((operator,)), _path(operator))
        yield _Row((*cells, *_place(operator)), ((series, operator),), operator.source.flops or 0)


def _place(operator: Operator) -> tuple[str, str, str]:
    return precision_cell(operator), plain(module_cell(operator)), line_cell(operator)


def _path(operator: Operator) -> str:
    return operator.family or operator.type


def _data(listed: Sequence[_Listed], known: _Known, most_rows: int, most_opened: int) -> Data:
    texts = Texts()
    series = list({id(each): each for found in listed for each in found.view.series}.values())
    number = {id(each): place for place, each in enumerate(series)}
    operators: list[dict[str, list[int]]] = [{} for _ in series]
    code: list[dict[str, int]] = [{} for _ in series]
    views = []
    for found in listed:
        inside = []
        for place, row in enumerate(found.rows[:most_rows]):
            members = [(number[id(each)], each.place(operator)) for each, operator in row.inside]
            inside.append(members)
            if place >= most_opened:
                continue
            for (which, index), (each, operator) in zip(members, row.inside, strict=True):
                operators[which][str(index)] = [
                    texts.number(fact) if fact else -1 for fact in known.of(each, operator)
                ]
                if operator.source.place.code:
                    code[which][str(index)] = texts.number(operator.source.place.code)
        views.append(
            {
                "label": found.view.label,
                "place": found.view.place,
                "headers": found.headers,
                "numbers": found.numbers,
                "rows": [texts.numbers(row.cells) for row in found.rows[:most_rows]],
                "inside": inside,
                "note": _note(found, most_rows, most_opened),
            }
        )
    return {
        "texts": texts.all,
        "facts": FACTS,
        "series": [each.name for each in series],
        "views": views,
        "operators": operators,
        "code": code,
    }


def _note(found: _Listed, most_rows: int, most_opened: int) -> str:
    count = len(found.rows)
    first = "longest" if found.view.timed else "largest"
    said = []
    if most_rows < count:
        whole = sum(row.weight for row in found.rows) or 1.0
        left = sum(row.weight for row in found.rows[most_rows:]) / whole
        said.append(
            f"The {most_rows:,} {first} of {count:,} are listed; the rest is {percent(left)} of the whole"
        )
    if most_opened < min(count, most_rows):
        said.append(f"the {most_opened:,} {first} can be opened")
    if not said:
        return ""
    text = "; ".join(said)
    return f"To keep this page small: {text[0].lower()}{text[1:]}. All are in {names.ANALYSIS}."


class _Known:
    """What is known about single operators."""

    def __init__(self, data: ReportData) -> None:
        self._coverage = data.outlook.coverage
        self._switched = data.has_sme2 is not False
        self._uses = {
            found.series: found.uses for found in data.evidence[0].kernels
        } if data.evidence else {}  # fmt: skip
        self._proven: dict[int, Mapping[int, str]] = {}
        self._kept: dict[tuple[int, int], list[str]] = {}

    def of(self, series: SeriesAnalysis, operator: Operator) -> list[str]:
        """A text for each of `FACTS`, empty where it is not known."""
        place = id(series), series.place(operator)
        if place not in self._kept:
            facts = self._facts(series, operator)
            self._kept[place] = [facts.get(name, "") for name in FACTS]
        return self._kept[place]

    def _facts(self, series: SeriesAnalysis, operator: Operator) -> dict[str, str]:
        timed = series.times.are_shown
        row = OperatorRow(operator, operator.typical_ms, 0.0)
        facts = {
            **{fact.called: fact.text(row) for fact in _IN_PAGE if timed or not fact.timed},
            "window": _window(operator),
            "kernel path": _path(operator),
            "SME2": self._sme2(series).get(series.place(operator), ""),
            "SME kernels of its type": ", ".join(kernels_for(operator, self._uses.get(series.series, ()))),
            "where in the run": f"call {operator.call}, position {operator.position}",
        }
        return facts | (_spread(operator) if timed else {})

    def _sme2(self, series: SeriesAnalysis) -> Mapping[int, str]:
        """By the operator's place: whether it was proven to run on SME2."""
        if id(series) not in self._proven:
            coverage = self._coverage
            where = "under emulation" if coverage.emulated else "with SME2 on"
            if series.sme2 is False and self._switched:
                found = {}
            elif not coverage.tested:
                found = {series.place(each): "not tested" for each in matrix_operators(series)}
            else:
                found = {
                    series.place(each): f"no SME kernel was seen to run it {where}"
                    for each in matrix_operators(series)
                }
                places = matrix_operators_by_key(series)
                for missing in coverage.missing:
                    for each in places.get(missing.operator.key.in_program, ()):
                        found[series.place(each)] = f"not {where}: {missing.reason}"
                for match in match_proven(series, coverage.ran)[0]:
                    for each in match.measured:
                        found[series.place(each)] = f"{coverage.isa} kernels ran it {where}"
            self._proven[id(series)] = found
        return self._proven[id(series)]


def _spread(operator: Operator) -> dict[str, str]:
    times = operator.times
    low, high, far, least, most = (
        milliseconds(ns / 1e6)
        for ns in (times.p10_ns, times.p90_ns, times.p99_ns, times.min_ns, times.max_ns)
    )
    return {
        "runs": str(times.runs),
        "median ms": milliseconds(operator.median_ms),
        "10% to 90% ms": f"{low} to {high}",
        "99% ms": far,
        "shortest to longest ms": f"{least} to {most}",
        "spread": percent(times.cv),
    }


def _window(operator: Operator) -> str:
    source = operator.source
    if not source.kernel_size:
        return ""
    groups = f", {source.groups} groups" if source.groups > 1 else ""
    return f"{shape_text(source.kernel_size, ' x ')}{groups}"
