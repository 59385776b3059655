"""Findings from one series: data movement, layout changes, fragmentation, portable operators, the roof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from model_profiling.analysis.categories import Category
from model_profiling.analysis.findings import (
    SHOWN,
    Finding,
    by_kind,
    described,
    largest,
    percent,
    rounded,
    severity,
    shown,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import Roofline, roof_gaps, seen_roofline
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.wording import plural

_PORTABLE_SHARE = 0.05
_FAR_BELOW = 0.25


def about_series(series: SeriesAnalysis, roof: Roofline | None = None) -> Iterable[Finding]:
    """Findings from the times of one series."""
    rules: tuple[Callable[[SeriesAnalysis], Finding | None], ...] = (
        _data_movement,
        _inserted_transposes,
        _fragmentation,
        _delegate_overhead,
        _portable_operators,
        _quantization,
        lambda one: _below_roof(one, roof),
    )
    return [finding for rule in rules if (finding := rule(series)) is not None]


def about_structure(series: SeriesAnalysis) -> Iterable[Finding]:
    """What can be said whatever the times are worth: names the table of categories does not know."""
    unknown = [operator for operator in series.operators if not operator.known]
    if unknown:
        counts = Counter(operator.type for operator in unknown)
        share = series.spent_by(unknown).share
        yield Finding(
            id="unknown-operators",
            title=f"{plural(len(counts), 'operator name')} in no category: counted as Other",
            severity="info",
            subject=series.name,
            evidence={
                "names": dict(counts),
                "share_pct": percent(share) if series.times.are_latencies else None,
            },
            max_gain_pct=0.0,
            action="report the names, so that the table of categories learns them",
        )


def _data_movement(series: SeriesAnalysis) -> Finding | None:
    share = series.spent(series.breakdown.categories[Category.DATA_MOVEMENT]).share
    if share < 0.10:
        return None
    moving = largest(series, lambda operator: operator.category is Category.DATA_MOVEMENT)
    after = " with SME2 on" if series.sme2 else ""
    return Finding(
        id="data-movement",
        title=f"moving data takes {percent(share)}% of the time{after}",
        severity=severity(share),
        subject=series.name,
        evidence={
            "share_pct": percent(share),
            "by_kind_ms": by_kind(moving),
            "largest": shown(series, moving),
        },
        max_gain_pct=percent(share),
        action="keep one layout through the model: remove permutes and reshapes between layers, feed "
        "channels-last input, and merge concatenations and slices where the model allows",
    )


def _inserted_transposes(series: SeriesAnalysis) -> Finding | None:
    inserted = largest(
        series, lambda operator: operator.origin == "lowering" and operator.category is Category.DATA_MOVEMENT
    )
    share = series.spent_by(inserted).share
    if not inserted or share < 0.005:
        return None
    return Finding(
        id="inserted-transposes",
        title=f"{plural(len(inserted), 'layout change')} that lowering added: {percent(share)}% of the time",
        severity=severity(share),
        subject=series.name,
        evidence={
            "count": len(inserted),
            "share_pct": percent(share),
            "where": [
                {
                    "operator": operator.name,
                    "ms": round(operator.typical_ms, 6),
                    "between": _between(series, operator),
                }
                for operator in inserted[:SHOWN]
            ],
        },
        max_gain_pct=percent(share),
        action="look at the modules on both sides: an operator that wants channels-first data stands between "
        "convolutions; replace it, move it to the model's edge, or export with channels-last input",
    )


def _fragmentation(series: SeriesAnalysis) -> Finding | None:
    if series.first.delegate_calls < 2:
        return None
    between = [operator for operator in series.operators if not operator.delegated]
    cost = series.breakdown.framework + series.breakdown.delegate_overhead
    # Delegates with a clock of their own may report more than their call took.
    share = max(0.0, series.spent(cost).share) + series.spent_by(between).share
    return Finding(
        id="delegate-fragmentation",
        title=f"the model runs as {series.first.delegate_calls} delegate calls with "
        f"{plural(series.first.operator_calls, 'operator')} outside them",
        severity=severity(share),
        subject=series.name,
        evidence={
            "delegate_calls": series.first.delegate_calls,
            "operator_calls": series.first.operator_calls,
            "outside_by_type": dict(Counter(operator.type for operator in between).most_common(SHOWN)),
            "boundary_ms": round(series.spent(cost).ms, 6),
            "operators_below_1us": _below_clock(series),
            "share_pct": percent(share),
        },
        max_gain_pct=percent(share),
        action="replace the operators outside with ones the backend takes, so that neighbouring parts join; "
        "`sme2prof export` says why each was not delegated",
    )


def _below_clock(series: SeriesAnalysis) -> int:
    """Delegates count whole microseconds: what these operators took shows as delegate overhead."""
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in series.operators)


def _delegate_overhead(series: SeriesAnalysis) -> Finding | None:
    share = series.spent(series.breakdown.delegate_overhead).share
    if share < 0.10:
        return None
    return Finding(
        id="delegate-overhead",
        title=f"{percent(share)}% of the time is inside delegate calls but in none of their operators",
        severity=severity(share),
        subject=series.name,
        evidence={
            "share_pct": percent(share),
            "ms": round(series.spent(series.breakdown.delegate_overhead).ms, 6),
            "delegate_calls": series.first.delegate_calls,
            "operators": sum(operator.delegated for operator in series.operators),
            "operators_below_1us": _below_clock(series),
        },
        max_gain_pct=percent(share),
        action="fewer and larger delegate calls cost less to enter; profiling itself adds a little per "
        "operator, so check the latency without a dump as well",
    )


def _portable_operators(series: SeriesAnalysis) -> Finding | None:
    portable = largest(series, lambda operator: not operator.delegated)
    share = series.spent_by(portable).share
    if share < _PORTABLE_SHARE:
        return None
    return Finding(
        id="portable-operators",
        title=f"operators outside delegates take {percent(share)}% of the time",
        severity=severity(share),
        subject=series.name,
        evidence={"count": len(portable), "share_pct": percent(share), "largest": shown(series, portable)},
        max_gain_pct=percent(share),
        action="portable kernels run on one thread without SIMD tuning: replace these operators with ones "
        "the backend supports, or export them so that it takes them",
    )


def _quantization(series: SeriesAnalysis) -> Finding | None:
    converting = largest(series, lambda operator: operator.kind in ("quantize", "dequantize", "convert"))
    share = series.spent_by(converting).share
    if share < 0.02:
        return None
    return Finding(
        id="quantize-dequantize",
        title=f"converting between number formats takes {percent(share)}% of the time",
        severity=severity(share),
        subject=series.name,
        evidence={
            "count": len(converting),
            "share_pct": percent(share),
            "largest": shown(series, converting),
        },
        max_gain_pct=percent(share),
        action="quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
    )


def _below_roof(series: SeriesAnalysis, supplied: Roofline | None) -> Finding | None:
    roof = supplied or seen_roofline(series.operators)
    if roof is None:
        return None
    low = [
        gap
        for gap in roof_gaps(series.operators, roof)
        if gap.efficiency < _FAR_BELOW and series.spent_by([gap.operator]).share >= 0.02
    ]
    gain = sum(series.spent_by([gap.operator]).share * gap.most_saved for gap in low)
    if not low:
        return None
    return Finding(
        id="below-roofline",
        title=f"{plural(len(low), 'operator')} below {_FAR_BELOW:.0%} of the roofline ({roof.source})",
        severity=severity(gain),
        subject=series.name,
        evidence={
            "roof_gflops": round(roof.gflops, 3),
            "roof_gbytes_per_s": round(roof.gbytes_per_s, 3),
            "roof_source": roof.source,
            "operators": [
                {
                    **described(series, gap.operator),
                    "efficiency_pct": percent(gap.efficiency),
                    "gflops": rounded(gap.operator.gflops),
                    "gbytes_per_s": rounded(gap.operator.gbytes_per_s),
                }
                for gap in low[:SHOWN]
            ],
        },
        max_gain_pct=percent(gain),
        action="small or odd shapes, depthwise and grouped convolutions use the machine badly: widen "
        "channels to multiples of the vector length, merge small operators, or try another number format",
    )


def _between(series: SeriesAnalysis, operator: Operator) -> list[str]:
    """The nearest operators before and after it in its call that come from the model."""
    call = [one for one in series.operators if (one.method, one.call) == (operator.method, operator.call)]
    before = [one for one in call if one.position < operator.position and one.origin == "model"]
    after = [one for one in call if one.position > operator.position and one.origin == "model"]
    return [
        before[-1].place if before else "the call's input",
        after[0].place if after else "the call's output",
    ]
