"""What tables, charts and explorers show: times and shares, pairs side by side, cells.

Times are rounded so that they add up to the last digit on the page: operators to their type, types to their
backend, backends to their category, and categories and overheads to end-to-end. Each level is rounded from
exact times within the level above it, so that eighteen small operators of one type show their true total, not
eighteen times the rounding error of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from model_profiling.analysis.causes.case import is_cut, short_operators
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import FRAMEWORK, UNATTRIBUTED, SeriesAnalysis
from model_profiling.core.formatting import (
    MISSING,
    decimals_for,
    milliseconds,
    percent,
    plural,
    rounded_parts,
)
from model_profiling.report.cells import change_cells, verdict_of
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.document import Table, Text, make_table

_SHARE_DECIMALS = 1
_END_TO_END = "End to end, typical traced run"


@dataclass(frozen=True, slots=True)
class ShownTime:
    """A rounded time and its rounded share of the whole."""

    ms: float
    percent: float
    decimals: int

    @property
    def cells(self) -> tuple[str, str]:
        return f"{self.ms:.{self.decimals}f}", f"{self.percent:.{_SHARE_DECIMALS}f}%"

    def __add__(self, other: ShownTime) -> ShownTime:
        return ShownTime(self.ms + other.ms, self.percent + other.percent, self.decimals)

    def __sub__(self, other: ShownTime) -> ShownTime:
        return ShownTime(self.ms - other.ms, self.percent - other.percent, self.decimals)


@dataclass(frozen=True, slots=True)
class ShownTimes:
    end_to_end: ShownTime
    parts: dict[str, ShownTime]
    """Categories, then overheads."""
    operators: dict[int, ShownTime]
    """By the operator's index in the series."""
    series: SeriesAnalysis

    def of(self, operators: Iterable[Operator]) -> ShownTime:
        total = ShownTime(0.0, 0.0, self.end_to_end.decimals)
        for operator in operators:
            total += self.operators[self.series.place(operator)]
        return total

    @property
    def all_operators(self) -> ShownTime:
        total = ShownTime(0.0, 0.0, self.end_to_end.decimals)
        for category in self.series.breakdown.categories:
            total += self.parts[category.value]
        return total

    def within(
        self, whole: ShownTime, members: Sequence[Operator], groups: Sequence[Sequence[Operator]]
    ) -> list[ShownTime]:
        """Return the time of each group in `members`, rounded from exact times so that the groups and the
        members in no group add up to `whole`, the time shown for all members."""
        spent = [self.series.spent_by(group) for group in groups]
        every = self.series.spent_by(members)
        ms = max(0.0, every.ms - sum(found.ms for found in spent))
        share = max(0.0, every.share - sum(found.share for found in spent))
        return _rounded([*((found.ms, found.share) for found in spent), (ms, share)], whole)[:-1]


_Figures = tuple[ShownTime, dict[str, ShownTime], dict[int, ShownTime]]
_known: WeakKeyDictionary[SeriesAnalysis, _Figures] = WeakKeyDictionary()
"""A cache, so that every section, chart and explorer of a page shows the same figures."""


def break_down(series: SeriesAnalysis) -> ShownTimes:
    figures = _known.get(series)
    if figures is None:
        figures = _known[series] = _figures(series)
    return ShownTimes(*figures, series)


def _figures(series: SeriesAnalysis) -> _Figures:
    whole = series.e2e_ms
    decimals = decimals_for(whole)
    spent = {name: series.spent(part) for name, part in series.parts.items()}
    parts = _rounded([(found.ms, found.share) for found in spent.values()], ShownTime(whole, 100.0, decimals))
    shown = dict(zip(spent, parts, strict=True))
    operators: dict[int, ShownTime] = {}
    for category in series.breakdown.categories:
        members = [place for place, operator in enumerate(series.operators) if operator.category is category]
        operators |= _within(series, members, shown[category.value], _STEPS)
    return ShownTime(round(whole, decimals), 100.0, decimals), shown, operators


_STEPS: tuple[Callable[[Operator], str], ...] = (
    lambda operator: operator.backend,
    lambda operator: operator.type,
)
"""How the operators of a category are grouped, level by level."""


def _within(
    series: SeriesAnalysis,
    places: Sequence[int],
    whole: ShownTime,
    steps: Sequence[Callable[[Operator], str]],
) -> dict[int, ShownTime]:
    """Round the operators at `places` so that they add up to `whole`, and to their group at each step."""
    groups: dict[object, list[int]] = {}
    for place in places:
        groups.setdefault(steps[0](series.operators[place]) if steps else place, []).append(place)
    spent = [series.spent_by([series.operators[place] for place in members]) for members in groups.values()]
    together = _rounded([(found.ms, found.share) for found in spent], whole)
    if not steps:
        return dict(zip(places, together, strict=True))
    return {
        place: found
        for members, group in zip(groups.values(), together, strict=True)
        for place, found in _within(series, members, group, steps[1:]).items()
    }


def _rounded(times: Sequence[tuple[float, float]], whole: ShownTime) -> list[ShownTime]:
    ms = rounded_parts([found for found, _ in times], whole.ms, whole.decimals)
    shares = rounded_parts([100 * share for _, share in times], whole.percent, _SHARE_DECIMALS)
    return [ShownTime(*found, whole.decimals) for found in zip(ms, shares, strict=True)]


def series_table(series: SeriesAnalysis) -> Table:
    shown = break_down(series)
    counts = {
        category.value: sum(operator.category is category for operator in series.operators)
        for category in series.breakdown.categories
    }
    rows = [
        (name, *found.cells, str(counts.get(name, MISSING)))
        for name, found in shown.parts.items()
        if found.ms or found.percent or counts.get(name)
    ]
    rows.append((_END_TO_END, *shown.end_to_end.cells, str(len(series.operators))))
    return make_table(("category", "ms", "share", "operators"), rows, numbers=(1, 2, 3))


def pair_table(pairing: Pairing, sides: tuple[str, str]) -> Table:
    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    rows: list[tuple[Text, ...]] = [
        (
            part.name,
            *before.parts[part.name].cells,
            *after.parts[part.name].cells,
            *change_cells(
                before.parts[part.name].cells[0], after.parts[part.name].cells[0], part.ratio, part.speedup
            ),
            verdict_of(part.speedup),
        )
        for part in pairing.categories
    ]
    ratio = pairing.traced_ratio
    ends = (*before.end_to_end.cells, *after.end_to_end.cells)
    rows.append((_END_TO_END, *ends, *change_cells(ends[0], ends[2], ratio), MISSING))
    headers = (
        "category",
        f"{sides[0]} ms",
        "share",
        f"{sides[1]} ms",
        "share",
        "change",
        "speedup",
        "verdict",
    )
    return make_table(headers, rows, numbers=(1, 2, 3, 4, 5, 6))


# Overheads: what they consist of, and how much of them the tracer causes.

EXPLAINED = 0.10
"""Overheads above this share of end-to-end time are explained wherever they are shown."""
TRACER_SAID = 0.01
"""The tracer's time is mentioned from this share of end-to-end time on."""


def explain_overheads(series: SeriesAnalysis) -> Iterator[str]:
    """Yield a sentence for each overhead above `EXPLAINED`, and one if tracing distorts the shares."""
    if distorted := distortion_text(series):
        yield distorted
    for name, part in ((UNATTRIBUTED, "unattributed"), (FRAMEWORK, "framework")):
        if series.spent(getattr(series.breakdown, part)).share > EXPLAINED:
            share = break_down(series).parts[name].cells[1]
            yield f"{name} ({share}) is {why(series, name)}."


def distortion_text(series: SeriesAnalysis) -> str:
    """Return a warning that traced shares do not hold without the tracer; empty if they do."""
    if not series.distorted or series.untraced_ms is None:
        return ""
    return (
        f"Tracing distorts this model: an inference takes {cost_text(series)} longer with the tracer on "
        f"({milliseconds(series.e2e_ms)} instead of {milliseconds(series.untraced_ms)} ms). Operator "
        f"times are valid; the tracer takes {percent(series.tracing.share)} of the time that shares refer to."
    )


def cost_text(series: SeriesAnalysis) -> str:
    return f"{100 * (series.tracer_cost or 0.0):.0f}%"


def why(series: SeriesAnalysis, name: str) -> str:
    """Return the cause of an overhead, worded as the rest of a sentence."""
    calls = plural(series.first.delegate_calls, "delegate call")
    inside = sum(operator.delegated for operator in series.operators)
    if name == FRAMEWORK:
        every = series.first.delegate_calls + series.first.operator_calls
        text = f"the runtime's own work around {plural(every, 'call')}"
        if not is_cut(series) and inside:
            text += ", and the delegates' around their operators"
    elif not inside:
        text = f"{calls} of backends that tell of no operators"
    else:
        short = short_operators(series)
        text = f"time of {calls} in none of their {plural(inside, 'operator')}"
        if is_cut(series):
            text += (
                f", of which {short} take less than a microsecond: XNNPACK's clock cuts each down to whole "
                "microseconds, so about half a microsecond of each is here"
            )
    tracing = series.tracing
    if tracing.share >= TRACER_SAID:
        text += (
            f"; of all overheads, {milliseconds(tracing.ms)} ms ({percent(tracing.share)}) are the tracer's"
        )
    elif series.untraced_ms is None:
        text += "; what the tracer takes of it was not measured"
    return text


# Views of a run's operators: pairs side by side, and single series.


def compared_pairs(data: ReportData) -> list[tuple[PairReport, Pairing]]:
    """Return the pairs that may be shown side by side, each with its pairing."""
    return [
        (pair, pairing) for pair in data.pairs if data.timed and (pairing := pair.side_by_side) is not None
    ]


@dataclass(frozen=True, slots=True)
class View:
    """A pair, or a single series if `pairing` is None."""

    label: str
    series: tuple[SeriesAnalysis, ...]
    pairing: Pairing | None
    timed: bool
    """Whether to show times; if not, work is shown."""
    place: str
    """Its place in `analysis_summary.json`, such as `pairs/0`."""

    @property
    def sides(self) -> tuple[tuple[Operator, ...], ...]:
        return tuple(series.operators for series in self.series)


def views_of(data: ReportData) -> list[View]:
    """Return every pair that may be shown side by side, then every series in none of them."""
    if data.analysis is None:
        return []
    timed = compared_pairs(data)
    pairings = [(pair, pairing, True) for pair, pairing in timed]
    if not data.times.are_shown:
        pairings = [(pair, pair.pairing, False) for pair in data.pairs if pair.pairing is not None]
    written = data.whole or data
    pair_places = {id(pair): place for place, pair in enumerate(written.pairs)}
    sides = [pairing.sides for _, pairing, _ in pairings]
    views = [
        View(
            f"{f'{pair.label}: ' if sides.count(pairing.sides) > 1 else ''}{' → '.join(pairing.sides)}",
            (pairing.baseline, pairing.candidate),
            pairing,
            shown,
            f"pairs/{pair_places[id(pair)]}",
        )
        for pair, pairing, shown in pairings
    ]
    seen = {series.series for view in views for series in view.series}
    alone = [
        View(series.label, (series,), None, series.times.are_shown, f"series/{place}")
        for place, series in enumerate(written.analysis.series if written.analysis else ())
        if series.series not in seen and data.analysis.of(series.series)
    ]
    return views + sorted(alone, key=lambda view: view.series[0].sme2 is False)
