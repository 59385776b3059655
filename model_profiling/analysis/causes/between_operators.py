"""What a delegate call takes beside its operators."""

from __future__ import annotations

from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import Finding, percent


def between_operators(seen: Seen) -> Finding | None:
    """What a single delegate call takes beside its operators; several calls are a matter of their edges."""
    if not seen.timed:
        return None
    series = seen.series
    spent = series.spent(series.breakdown.delegate_overhead)
    if series.first.delegate_calls != 1 or spent.share < 0.10:
        return None
    inside = [operator for operator in series.operators if operator.delegated]
    # Delegates count whole microseconds: what shorter operators took shows here.
    short = sum(operator.times.median_ns < 1000 for operator in inside)
    return Finding(
        "delegate-overhead",
        "Merge small operators: the delegate spends time between them",
        f"{len(inside)} operators run in one delegate call, {short} of them in less than a microsecond, "
        "which counts as none; the tracer costs a little at each, so look at the latency without it first",
        series,
        evidence={
            "ms": round(spent.ms, 6),
            "share_pct": percent(spent.share),
            "operators": len(inside),
            "operators_below_1us": short,
        },
        max_gain_pct=seen.gain_pct(spent.ms),
    )
