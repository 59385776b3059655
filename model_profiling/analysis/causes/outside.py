"""What no delegate took, and what entering more than one delegate call costs."""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.analysis.causes.seen import Seen, counted, kinds_named
from model_profiling.analysis.findings import Finding, by_kind, concerns_of, percent
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis, Spent
from model_profiling.wording import plural


def outside(seen: Seen) -> Finding | None:
    series, timed = seen.series, seen.timed
    calls = series.first.delegate_calls
    left = seen.largest(lambda operator: not operator.delegated)
    if not left and calls < 2:
        return None
    edges = _edges(series) if calls > 1 and timed else None
    own = series.spent_by(left)
    evidence: dict[str, object] = {
        "delegate_calls": calls,
        "operator_calls": series.first.operator_calls,
        "outside_by_kind": {kind: len(members) for kind, members in by_kind(left).items()},
    }
    if timed:
        evidence |= {
            "operators_share_pct": percent(own.share),
            "boundary_ms": round(edges.ms, 6) if edges else 0.0,
            "boundary_share_pct": percent(edges.share) if edges else 0.0,
        }
    return Finding(
        "outside-delegates",
        f"Bring {counted(left)} into the delegate"
        if left
        else f"Join {plural(calls, 'delegate call')} into fewer",
        _into_delegates(left, calls),
        series,
        concerns_of(left),
        evidence,
        seen.gain_pct(own.ms, edges.ms if edges else 0.0),
        besides=edges,
    )


def _into_delegates(outside: Sequence[Operator], calls: int) -> str:
    if not outside:
        return (
            "every call has a price: one backend for all of the model, or operators that neighbouring parts "
            "share, join them"
        )
    if not calls:
        return "no delegate took anything: export with --backend xnnpack"
    joined = (
        f"; the model runs as {plural(calls, 'delegate call')}, and fewer cost less to enter"
        if calls > 1
        else ""
    )
    return (
        f"portable kernels ({kinds_named(outside)}) run on one thread without SIMD tuning; `sme2prof "
        f"export` says why each was not taken, and what to write instead where something is known{joined}"
    )


def _edges(series: SeriesAnalysis) -> Spent:
    """What is around delegate calls and in none of their operators."""
    cost = series.spent(series.breakdown.framework + series.breakdown.delegate_overhead)
    # Delegates with a clock of their own may report more than their call took.
    return Spent(max(0.0, cost.ms), max(0.0, cost.share))
