"""What tables, charts and explorers show: cells, times and shares, pairs side by side.

Parts of one table add up to the last digit: categories and overheads to end-to-end, operators to their
category. What several operators take together, elsewhere, is rounded by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from model_profiling.analysis.coverage import RAN, Projection, Sme2Coverage
from model_profiling.analysis.findings import Finding
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.series import FRAMEWORK, OVERHEADS, UNATTRIBUTED, SeriesAnalysis, Spent
from model_profiling.config.series import Series
from model_profiling.core.formatting import (
    MISSING,
    capitalized,
    change,
    decimals_for,
    milliseconds,
    percent,
    plural,
    rounded_parts,
    size,
    span,
    speedup,
)
from model_profiling.facts import WithSeries
from model_profiling.report.data import PairReport, ReportData, headline_pair
from model_profiling.report.document import Code, Number, ShownTable, TableColumn, Text, make_table
from model_profiling.statistics.measure import LatencySummary
from model_profiling.statistics.speedup import Speedup, Verdict

# Columns and cells that several tables share.

_SAME, _UNCLEAR = "about the same", "unclear"
_ALIKE = 0.03
"""Two times that differ by less, or by a last digit, are called about the same if no change is proven."""


def change_cells(
    before: str, after: str, ratio: float | None, found: Speedup | None = None
) -> tuple[str, str]:
    """Return change and speedup to stand beside two times as shown, so that the figures never contradict.

    Speedups come from turns, times from typical runs, and both are rounded: where the times show another
    direction, or none is proven, words replace the figures.
    """
    if ratio is None or MISSING in (before, after):
        return change(ratio), speedup(ratio)
    ours, theirs = float(before), float(after)
    last_digit = 10.0 ** -len(before.partition(".")[2])
    proven = found is not None and found.verdict in (Verdict.FASTER, Verdict.SLOWER)
    if ours == theirs and proven:
        return f"under {last_digit:g} ms", speedup(ratio)
    alike = abs(theirs - ours) < max(1.5 * last_digit, _ALIKE * ours)
    if found is not None and found.verdict is Verdict.NO_CHANGE:
        return _SAME if alike else _UNCLEAR, MISSING
    if (theirs - ours) * (1 - ratio) > 0:
        return change(ratio), speedup(ratio)
    return _SAME if alike else _UNCLEAR, MISSING


def median_change(found: Speedup) -> str:
    """Return the change beside the two medians of a comparison."""
    medians = milliseconds(found.baseline_median), milliseconds(found.candidate_median)
    return change_cells(*medians, found.ratio, found)[0]


def verdict_of(found: Speedup | None) -> str:
    return MISSING if found is None else found.verdict.value


def speedup_text(found: Speedup, of: str = "") -> str:
    """Return `1.84x (95% interval 1.80 to 1.88)`, with `of` after the ratio."""
    if found.ratio is None:
        return found.verdict.value
    interval = interval_text(found)
    by = " by CPU time" if found.measured == "cpu time" else ""
    ratio = f"{found.ratio:.2f}x{of}{by}"
    return f"{ratio} ({interval})" if interval else f"about {ratio}, without a verdict"


def interval_text(found: Speedup) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{found.confidence:.0%} interval {found.low:.2f} to {found.high:.2f}"


def ratio_text(found: Speedup | None, decimals: int = 3) -> str:
    """Return `1.844x (1.801 to 1.882)` for a cell."""
    if found is None or found.ratio is None:
        return found.verdict.value if found else MISSING
    ratio = f"{found.ratio:.{decimals}f}x"
    if found.low is None or found.high is None:
        return ratio
    return f"{ratio} ({found.low:.{decimals}f} to {found.high:.{decimals}f})"


def proven_text(coverage: Sme2Coverage) -> str:
    """Say how much of the matrix work ran on SME2."""
    every = plural(len(coverage.operators), "matrix operator")
    ran = f"{coverage.isa} kernels ran {len(coverage.proven)} of {every}"
    if coverage.arithmetic_share is not None:
        known = " that is known" if coverage.unseen or coverage.uncounted else ""
        ran += f", {percent(coverage.arithmetic_share)} of the matrix arithmetic{known}"
    if not coverage.isa:
        where = "Under emulation, " if coverage.emulated else ""
        one = len(coverage.operators) == 1
        none = "the only matrix operator did not use" if one else f"none of the {every} used"
        return capitalized(f"{where}{none} SME2")
    return f"Under emulation: {ran}" if coverage.emulated else ran


def range_text(found: Projection) -> str:
    """Rough, as the factors are: `about 2.7x to 9.6x`."""
    return f"about {span(times_faster(found.low, rough=True), times_faster(found.high, rough=True))}"


def times_faster(speedup: float, *, rough: bool = False) -> str:
    decimals = 1 if rough and speedup >= 2 else 2
    return f"{speedup:.{decimals}f}x" if math.isfinite(speedup) else "without a bound"


def number_cell(value: int | None) -> str:
    return MISSING if value is None else str(value)


def series_columns(known: Collection[Series]) -> tuple[TableColumn[WithSeries], ...]:
    """Return the columns that tell the series of a run apart; none if there is one series."""
    columns: tuple[TableColumn[WithSeries], ...] = (
        TableColumn("experiment", lambda row: row.series.experiment),
        Number("threads", lambda row: number_cell(row.series.threads)),
    )
    several = (len({each.experiment for each in known}) > 1, len({each.threads for each in known}) > 1)
    return tuple(column for column, needed in zip(columns, several, strict=True) if needed)


def median_cell(found: LatencySummary | None) -> str:
    return milliseconds(found.median if found else None)


def spread_cell(found: LatencySummary | None) -> str:
    return f"{milliseconds(found.p5)} to {milliseconds(found.p95)}" if found else MISSING


def sme2_switch(sme2: bool | None, *, absent: bool) -> str:
    """Return `on`, `off` or, if the CPU has no SME2, `absent`."""
    if absent:
        return "absent"
    return MISSING if sme2 is None else "on" if sme2 else "off"


def work_cells(operators: Sequence[Operator]) -> tuple[str, str]:
    known = [operator.source for operator in operators if operator.source.flops is not None]
    if operators and not known:
        return MISSING, MISSING
    flops = sum(source.flops or 0 for source in known)
    return f"{flops / 1e6:.1f}", size(float(sum(source.bytes_moved or 0 for source in known)))


VARIANT_NOTE = (
    "Variant: the kind of kernel that the backend chose; XNNPACK's PF32, PF16 and PQS8 are for SME and SME2."
)


def variant_cell(pair: OperatorPair) -> str:
    before, after = pair.families
    if pair.change == "same":
        return pair.main.family or MISSING
    if pair.change in ("appeared", "vanished"):
        return f"{pair.change} ({after or before})"
    return f"{before} → {after}"


def sme2_cell(
    pair: OperatorPair, pairing: Pairing, baseline: Mapping[int, str], candidate: Mapping[int, str]
) -> str:
    """Return whether SME2 kernels run it on the candidate's side, which has it unless it vanished."""
    side, known, operators = pairing.candidate, candidate, pair.candidate
    if not operators:
        side, known, operators = pairing.baseline, baseline, pair.baseline
    found = [known[side.place(operator)] for operator in operators]
    return next((text for text in found if text not in RAN), found[0])


def layer_cell(operator: Operator) -> Text:
    """`features.0 Conv2d`: what tells apart operators of one name."""
    path, place = operator.source.module_path, operator.source.place
    if operator.origin == "lowering" or not path:
        return operator.place if operator.origin == "lowering" or place.node else MISSING
    kind = place.module_class.rpartition(".")[2]
    return (Code(path), f" {kind}") if kind else Code(path)


def name_cells(operator: Operator) -> tuple[Text, Text, Text]:
    return layer_cell(operator), Code(operator.name), operator.category.value


def place_cells(operator: Operator) -> tuple[str, str]:
    """The precision; the model's line, or else the layer."""
    place = operator.source.place
    return operator.precision or MISSING, place.short_line or place.layer or MISSING


NAME_HEADERS, PLACE_HEADERS = ("layer", "operator", "category"), ("precision", "source")


_AROUND = "time outside operators"
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


@dataclass(frozen=True, slots=True)
class ShownTimes:
    series: SeriesAnalysis
    end_to_end: ShownTime
    parts: dict[str, ShownTime]
    """Categories, then overheads."""
    operators: tuple[ShownTime, ...]
    """In the order of the series."""

    def of(self, operators: Sequence[Operator]) -> ShownTime:
        """Return the time of one operator as in every table, of several rounded by itself."""
        if len(operators) == 1:
            return self.operators[self.series.place(operators[0])]
        spent = self.series.spent_by(operators)
        return ShownTime(spent.ms, 100 * spent.share, self.end_to_end.decimals)

    def sum_of(self, operators: Iterable[Operator]) -> ShownTime:
        """Return the sum of times as shown, so that a table adds up."""
        times = [self.of([operator]) for operator in operators]
        ms, share = sum(time.ms for time in times), sum(time.percent for time in times)
        return ShownTime(ms, share, self.end_to_end.decimals)


@lru_cache(maxsize=64)
def break_down(series: SeriesAnalysis) -> ShownTimes:
    """Cached, because every section, chart and explorer of a page shows these figures."""
    whole = ShownTime(series.e2e_ms, 100.0, decimals_for(series.e2e_ms))
    spent = [series.spent(part) for part in series.parts.values()]
    parts = dict(zip(series.parts, _rounded(spent, whole), strict=True))
    operators: dict[int, ShownTime] = {}
    for category in series.breakdown.categories:
        places = [place for place, operator in enumerate(series.operators) if operator.category is category]
        spent = [series.spent_by([series.operators[place]]) for place in places]
        operators |= zip(places, _rounded(spent, parts[category.value]), strict=True)
    return ShownTimes(series, whole, parts, tuple(operators[place] for place in sorted(operators)))


def _rounded(spent: Sequence[Spent], whole: ShownTime) -> list[ShownTime]:
    ms = rounded_parts([part.ms for part in spent], whole.ms, whole.decimals)
    shares = rounded_parts([100 * part.share for part in spent], whole.percent, _SHARE_DECIMALS)
    return [ShownTime(*figures, whole.decimals) for figures in zip(ms, shares, strict=True)]


def series_table(series: SeriesAnalysis) -> ShownTable:
    shown, counts = break_down(series), series.operator_counts
    rows = [
        (name, *time.cells, str(counts.get(name, MISSING)))
        for name, time in shown.parts.items()
        if time.ms or time.percent or counts.get(name)
    ]
    rows.append((_END_TO_END, *shown.end_to_end.cells, str(len(series.operators))))
    return make_table(("category", "ms", "share", "operators"), rows, numbers=(1, 2, 3))


def pair_table(pairing: Pairing, sides: tuple[str, str]) -> ShownTable:
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
    ends = (*before.end_to_end.cells, *after.end_to_end.cells)
    # Judged by the same traced turns as the categories, if that is what the pair has.
    traced = pairing.e2e if pairing.with_tracer and not pairing.not_comparable else None
    ratio = traced.ratio if traced else pairing.traced_ratio
    rows.append((_END_TO_END, *ends, *change_cells(ends[0], ends[2], ratio, traced), verdict_of(traced)))
    headers = (
        "category", f"{sides[0]} ms", "share", f"{sides[1]} ms", "share", "change", "speedup", "verdict",
    )  # fmt: skip
    return make_table(headers, rows, numbers=(1, 2, 3, 4, 5, 6))


def largest_parts(pairing: Pairing) -> tuple[CategoryPair, CategoryPair]:
    """Return the largest part before and the largest after, with the shares that the tables show."""
    before, after = break_down(pairing.baseline).parts, break_down(pairing.candidate).parts
    parts = [
        replace(
            part,
            baseline_share=before[part.name].percent / 100,
            candidate_share=after[part.name].percent / 100,
        )
        for part in pairing.categories
    ]
    most_after = max(parts, key=lambda part: part.candidate_share)
    return max(parts, key=lambda part: part.baseline_share), most_after


def shift_text(before: CategoryPair, after: CategoryPair, sides: tuple[str, str]) -> str:
    """Say whether the bottleneck moved or, if it did not, how its share changed."""
    if before.name == after.name:
        share, now = percent(before.baseline_share), percent(after.candidate_share)
        return f"{before.name} goes from {share} of the time to {now}."
    was = f"{before.name} ({percent(before.baseline_share)} of the time with {sides[0]})"
    shares = (
        f"{percent(after.baseline_share)} with {sides[0]}, {percent(after.candidate_share)} with {sides[1]}"
    )
    return f"The bottleneck moves from {was} to {after.name} ({shares})."


def time_shares(series: SeriesAnalysis) -> dict[str, float]:
    """Return each part's share of the time in percent; without the tracer's own time if that distorts it."""
    shares = {name: shown.percent for name, shown in break_down(series).parts.items()}
    if series.distorted:
        # Operators' own times hold, so the time without the tracer's part divides in the same way.
        tracers = 100 * series.tracing.share
        real = 100 / max(0.1, 100 - tracers)
        around = sum(shares.pop(name) for name in OVERHEADS)
        shares = {name: share * real for name, share in shares.items()}
        shares[_AROUND] = max(0.0, (around - tracers) * real)
    return shares


# Overheads: what they consist of, and how much of them the tracer causes.

EXPLAINED = 0.10
"""Overheads above this share of end-to-end time are explained wherever they are shown."""
TRACER_SAID = 0.01
"""The tracer's time is mentioned from this share of end-to-end time on."""


def explain_overheads(series: SeriesAnalysis) -> Iterator[str]:
    """Yield a sentence for each overhead above `EXPLAINED`, and one if tracing distorts the shares."""
    if series.distorted and series.untraced_ms is not None:
        yield (
            f"Tracing distorts this model: an inference takes {cost_text(series)} longer with the tracer on "
            f"({milliseconds(series.e2e_ms)} instead of {milliseconds(series.untraced_ms)} ms). Operators' "
            f"times hold; of the time that shares refer to, the tracer takes {percent(series.tracing.share)}."
        )
    for name in (UNATTRIBUTED, FRAMEWORK):
        if series.spent(series.parts[name]).share > EXPLAINED:
            yield f"{name} ({break_down(series).parts[name].cells[1]}) is {why(series, name)}."


def cost_text(series: SeriesAnalysis) -> str:
    return f"{100 * (series.tracer_cost or 0.0):.0f}%"


def why(series: SeriesAnalysis, name: str) -> str:
    """Return the cause of an overhead, worded as the rest of a sentence."""
    calls = plural(series.first.delegate_calls, "delegate call")
    inside = sum(operator.delegated for operator in series.operators)
    if name == FRAMEWORK:
        every = series.first.delegate_calls + series.first.operator_calls
        text = f"the runtime's own work around {plural(every, 'call')}"
    elif not inside:
        text = f"{calls} of backends that tell of no operators"
    else:
        text = f"time of {calls} in none of their {plural(inside, 'operator')}"
        if series.cut_to_microseconds:
            text += ": XNNPACK's clock cuts each down to whole microseconds"
    if series.tracing.share >= TRACER_SAID:
        ms, share = milliseconds(series.tracing.ms), percent(series.tracing.share)
        text += f"; of all overheads, {ms} ms ({share}) are the tracer's"
    return text


def compared_pairs(data: ReportData) -> list[tuple[PairReport, Pairing]]:
    """Return the pairs that may be shown side by side, each with its pairing; the headline first."""
    first = headline_pair(data)
    pairs = [(pair, pairing) for pair in data.pairs if data.timed and (pairing := pair.side_by_side)]
    return sorted(pairs, key=lambda compared: compared[0] is not first)


def finding_text(found: Finding) -> str:
    groups = [group for group in found.groups if group.where]
    step = f" {capitalized(found.first_step)}." if found.first_step else ""
    named = groups and groups[0].concerns[0].operator.source.place.short_line
    if not groups or (named and named in found.title):
        return f"{found.title}{gain_text(found)}.{step}"
    between = groups[0].is_between
    several = "the longest " + ("" if between else "at ") if found.max_gain_pct else "such as "
    first = f"{several if len(found.groups) > 1 else ''}{groups[0].where}"
    return f"{found.title}{f', {first}' if between else f' ({first})'}{gain_text(found)}.{step}"


def gain_text(found: Finding) -> str:
    """Return `: at most 16.8% less time`, rounded as in the tables; empty if unknown."""
    return f": at most {found.max_gain_pct:.1f}% less time" if found.max_gain_pct else ""
