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
    share_finding,
    shown,
)  # fmt: skip
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
        lambda found: _below_roof(found, roof),
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
    return share_finding(
        "data-movement",
        f"moving data takes {percent(share)}% of the time{after}",
        series.name,
        share,
        {"share_pct": percent(share), "by_kind_ms": by_kind(moving), "largest": shown(series, moving)},
        "keep one layout through the model: remove permutes and reshapes between layers, feed channels-last "
        "input, and merge concatenations and slices where the model allows",
    )


def _inserted_transposes(series: SeriesAnalysis) -> Finding | None:
    inserted = largest(
        series, lambda operator: operator.origin == "lowering" and operator.category is Category.DATA_MOVEMENT
    )
    share = series.spent_by(inserted).share
    if not inserted or share < 0.005:
        return None
    where = [
        {"operator": moved.name, "ms": round(moved.typical_ms, 6), "between": _between(series, moved)}
        for moved in inserted[:SHOWN]
    ]
    return share_finding(
        "inserted-transposes",
        f"{plural(len(inserted), 'layout change')} that lowering added: {percent(share)}% of the time",
        series.name,
        share,
        {"count": len(inserted), "share_pct": percent(share), "where": where},
        "look at the modules on both sides: an operator that wants channels-first data stands between "
        "convolutions; replace it, move it to the model's edge, or export with channels-last input",
    )


def _fragmentation(series: SeriesAnalysis) -> Finding | None:
    calls, outside = series.first.delegate_calls, series.first.operator_calls
    if calls < 2:
        return None
    between = [operator for operator in series.operators if not operator.delegated]
    cost = series.spent(series.breakdown.framework + series.breakdown.delegate_overhead)
    # Delegates with a clock of their own may report more than their call took.
    share = max(0.0, cost.share) + series.spent_by(between).share
    return share_finding(
        "delegate-fragmentation",
        f"the model runs as {calls} delegate calls with {plural(outside, 'operator')} outside them",
        series.name,
        share,
        {
            "delegate_calls": calls,
            "operator_calls": outside,
            "outside_by_type": dict(Counter(operator.type for operator in between).most_common(SHOWN)),
            "boundary_ms": round(cost.ms, 6),
            "operators_below_1us": _below_clock(series),
            "share_pct": percent(share),
        },
        "replace the operators outside with ones the backend takes, so that neighbouring parts join; "
        "`sme2prof export` says why each was not delegated",
    )


def _below_clock(series: SeriesAnalysis) -> int:
    """Delegates count whole microseconds: what these operators took shows as delegate overhead."""
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in series.operators)


def _delegate_overhead(series: SeriesAnalysis) -> Finding | None:
    spent = series.spent(series.breakdown.delegate_overhead)
    if spent.share < 0.10:
        return None
    return share_finding(
        "delegate-overhead",
        f"{percent(spent.share)}% of the time is inside delegate calls but in none of their operators",
        series.name,
        spent.share,
        {
            "share_pct": percent(spent.share),
            "ms": round(spent.ms, 6),
            "delegate_calls": series.first.delegate_calls,
            "operators": sum(operator.delegated for operator in series.operators),
            "operators_below_1us": _below_clock(series),
        },
        "fewer and larger delegate calls cost less to enter; profiling itself adds a little per operator, so "
        "check the latency without a dump as well",
    )


def _portable_operators(series: SeriesAnalysis) -> Finding | None:
    portable = largest(series, lambda operator: not operator.delegated)
    return _about_operators(
        series,
        portable,
        _PORTABLE_SHARE,
        ("portable-operators", "operators outside delegates take"),
        "portable kernels run on one thread without SIMD tuning: replace these operators with ones the "
        "backend supports, or export them so that it takes them",
    )


def _quantization(series: SeriesAnalysis) -> Finding | None:
    converting = largest(series, lambda operator: operator.kind in ("quantize", "dequantize", "convert"))
    return _about_operators(
        series,
        converting,
        0.02,
        ("quantize-dequantize", "converting between number formats takes"),
        "quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
    )


def _about_operators(
    series: SeriesAnalysis, operators: list[Operator], least: float, what: tuple[str, str], action: str
) -> Finding | None:
    share = series.spent_by(operators).share
    if share < least:
        return None
    evidence = {"count": len(operators), "share_pct": percent(share), "largest": shown(series, operators)}
    title = f"{what[1]} {percent(share)}% of the time"
    return share_finding(what[0], title, series.name, share, evidence, action)


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
    return share_finding(
        "below-roofline",
        f"{plural(len(low), 'operator')} below {_FAR_BELOW:.0%} of the roofline ({roof.source})",
        series.name,
        gain,
        {
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
        "small or odd shapes, depthwise and grouped convolutions use the machine badly: widen channels to "
        "multiples of the vector length, merge small operators, or try another number format",
    )


def _between(series: SeriesAnalysis, operator: Operator) -> list[str]:
    """The nearest operators before and after it in its call that come from the model."""
    place = operator.method, operator.call
    call = [near for near in series.operators if (near.method, near.call) == place and near.origin == "model"]
    before = [near for near in call if near.position < operator.position]
    after = [near for near in call if near.position > operator.position]
    return [
        before[-1].place if before else "the call's input",
        after[0].place if after else "the call's output",
    ]
