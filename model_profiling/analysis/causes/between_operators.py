"""What a delegate call takes beside its operators."""

from __future__ import annotations

from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import Finding, percent
from model_profiling.analysis.operator_clock import CUT
from model_profiling.analysis.series import SeriesAnalysis


def between_operators(seen: Seen) -> Finding | None:
    """What a single delegate call takes beside its operators; several calls are a matter of their edges."""
    if not seen.timed:
        return None
    series = seen.series
    spent = series.spent(series.breakdown.delegate_overhead)
    if series.first.delegate_calls != 1 or spent.share < 0.10:
        return None
    inside = [operator for operator in series.operators if operator.delegated]
    short = short_operators(series)
    cut = (
        "; XNNPACK's clock cuts each down to whole microseconds, so about half a microsecond of each is here"
        if is_cut(series)
        else ""
    )
    return Finding(
        "delegate-overhead",
        "Merge small operators: the delegate spends time between them",
        f"{len(inside)} operators run in one delegate call, {short} of them in less than a microsecond{cut}; "
        "what the tracer takes is not in the bound"
        if series.tracing.ms
        else f"{len(inside)} operators run in one delegate call, {short} of them in less than a "
        f"microsecond{cut}; the tracer costs a little at each, so look at the latency without it first",
        series,
        evidence={
            "ms": round(spent.ms, 6),
            "share_pct": percent(spent.share),
            "operators": len(inside),
            "operators_below_1us": short,
            "tracer_ms": round(series.tracing.ms, 6),
        },
        max_gain_pct=seen.gain_pct(0.0, spent.ms),
    )


def short_operators(series: SeriesAnalysis) -> int:
    """How many operators of delegates take less than a microsecond."""
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in series.operators)


def is_cut(series: SeriesAnalysis) -> bool:
    """Whether operators have the whole microseconds of XNNPACK, so that a part of them shows between them."""
    return CUT in series.clock
