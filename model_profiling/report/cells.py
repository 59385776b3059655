"""Columns and cells that several tables share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from model_profiling.analysis.coverage import RAN
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, change, milliseconds, size, speedup
from model_profiling.report.document import Code, Column, Number, Text
from model_profiling.statistics.latency import LatencySummary
from model_profiling.statistics.speedup import Speedup, Verdict

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
    if (theirs > ours) is (ratio < 1) and ours != theirs:
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


class _OfSeries(Protocol):
    @property
    def series(self) -> Series: ...


def number_cell(value: int | None) -> str:
    return MISSING if value is None else str(value)


def series_columns(known: Collection[Series]) -> tuple[Column[_OfSeries], ...]:
    """Return the columns that tell the series of a run apart; none if there is one series."""
    columns: tuple[Column[_OfSeries], ...] = (
        Column("experiment", lambda row: row.series.experiment),
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
    "Variant (a column of comparisons and of the HTML report): the kind of kernel that the backend chose; "
    "XNNPACK's PF32, PF16 and PQS8 are for SME and SME2."
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


def module_cell(operator: Operator) -> str | Code:
    if operator.origin == "lowering":
        return operator.place
    return Code(operator.source.module_path) if operator.source.module_path else MISSING


def layer_cell(operator: Operator) -> Text:
    """`features.0 Conv2d`: what tells apart operators of one name."""
    path, place = operator.source.module_path, operator.source.place
    if operator.origin == "lowering" or not path:
        return operator.place if operator.origin == "lowering" or place.node else MISSING
    kind = place.module_class.rpartition(".")[2]
    return (Code(path), f" {kind}") if kind else Code(path)


def line_cell(operator: Operator) -> str:
    """The model's line, or else the layer."""
    return operator.source.place.short_line or operator.source.place.layer or MISSING


def precision_cell(operator: Operator) -> str:
    return operator.precision or MISSING


def place_cells(operator: Operator) -> tuple[str, str]:
    return precision_cell(operator), line_cell(operator)


NAME_HEADERS, PLACE_HEADERS = ("layer", "operator", "category"), ("precision", "source")
