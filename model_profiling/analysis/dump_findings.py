"""Findings from one dump: data movement, layout changes, fragmentation, portable operators, the roof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from model_profiling.analysis.categories import Category
from model_profiling.analysis.findings import (
    SHOWN,
    Finding,
    by_kind,
    described,
    largest,
    part_share,
    percent,
    rounded,
    severity,
    share_of,
    shown,
    subject,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import Roofline, roof_gaps, seen_roofline
from model_profiling.analysis.summary import DumpAnalysis

_PORTABLE_SHARE = 0.05
_FAR_BELOW = 0.25


def about_dump(dump: DumpAnalysis, roof: Roofline | None = None) -> Iterable[Finding]:
    """Findings from one dump's times."""
    rules: tuple[Callable[[DumpAnalysis], Finding | None], ...] = (
        _data_movement,
        _inserted_transposes,
        _fragmentation,
        _delegate_overhead,
        _portable_operators,
        _quantization,
        lambda one: _below_roof(one, roof),
    )
    return [finding for rule in rules if (finding := rule(dump)) is not None]


def about_structure(dump: DumpAnalysis) -> Iterable[Finding]:
    """What can be said whatever the times are worth: names the table of categories does not know."""
    if dump.unknown_names:
        counts = Counter(operator.type for operator in dump.operators if not operator.known)
        share = sum(share_of(dump, operator) for operator in dump.operators if not operator.known)
        yield Finding(
            id="unknown-operators",
            title=f"{len(counts)} operator names are in no category and count as Other",
            severity="info",
            subject=subject(dump),
            evidence={
                "names": dict(counts),
                "share_pct": percent(share) if dump.timings_are_latency else None,
            },
            max_gain_pct=0.0,
            action="report the names, so that the table of categories learns them",
        )


def _data_movement(dump: DumpAnalysis) -> Finding | None:
    share = part_share(dump, dump.breakdown.categories[Category.DATA_MOVEMENT])
    if share < 0.10:
        return None
    moving = largest(dump, lambda operator: operator.category is Category.DATA_MOVEMENT)
    after = " with SME2 on" if dump.sme2 else ""
    return Finding(
        id="data-movement",
        title=f"moving data takes {percent(share)}% of the time{after}",
        severity=severity(share),
        subject=subject(dump),
        evidence={
            "share_pct": percent(share),
            "by_kind_ms": by_kind(moving),
            "largest": shown(dump, moving),
        },
        max_gain_pct=percent(share),
        action="keep one layout through the model: remove permutes and reshapes between layers, feed "
        "channels-last input, and merge concatenations and slices where the model allows",
    )


def _inserted_transposes(dump: DumpAnalysis) -> Finding | None:
    inserted = largest(
        dump, lambda operator: operator.origin == "lowering" and operator.category is Category.DATA_MOVEMENT
    )
    share = sum(share_of(dump, operator) for operator in inserted)
    if not inserted or share < 0.005:
        return None
    return Finding(
        id="inserted-transposes",
        title=f"{len(inserted)} layout changes that lowering inserted take {percent(share)}% of the time",
        severity=severity(share),
        subject=subject(dump),
        evidence={
            "count": len(inserted),
            "share_pct": percent(share),
            "where": [
                {
                    "operator": operator.name,
                    "ms": round(operator.median_ms, 6),
                    "between": _between(dump, operator),
                }
                for operator in inserted[:SHOWN]
            ],
        },
        max_gain_pct=percent(share),
        action="look at the modules on both sides: an operator that wants channels-first data stands between "
        "convolutions; replace it, move it to the model's edge, or export with channels-last input",
    )


def _fragmentation(dump: DumpAnalysis) -> Finding | None:
    if dump.delegate_calls < 2:
        return None
    between = [operator for operator in dump.operators if not operator.delegated]
    cost = dump.breakdown.framework + dump.breakdown.delegate_overhead
    share = part_share(dump, cost) + sum(share_of(dump, operator) for operator in between)
    return Finding(
        id="delegate-fragmentation",
        title=f"the model runs as {dump.delegate_calls} delegate calls with {dump.operator_calls} operators "
        "outside them",
        severity=severity(share),
        subject=subject(dump),
        evidence={
            "delegate_calls": dump.delegate_calls,
            "operator_calls": dump.operator_calls,
            "outside_by_type": dict(Counter(operator.type for operator in between).most_common(SHOWN)),
            "boundary_ms": round(float(np.median(cost)) / 1e6, 6),
            "operators_below_1us": _below_clock(dump),
            "share_pct": percent(share),
        },
        max_gain_pct=percent(share),
        action="replace the operators outside with ones the backend takes, so that neighbouring parts join; "
        "`sme2prof export` says why each was not delegated",
    )


def _below_clock(dump: DumpAnalysis) -> int:
    """Delegates count whole microseconds: what these operators took shows as delegate overhead."""
    return sum(operator.delegated and operator.times.median_ns < 1000 for operator in dump.operators)


def _delegate_overhead(dump: DumpAnalysis) -> Finding | None:
    share = part_share(dump, dump.breakdown.delegate_overhead)
    if share < 0.10:
        return None
    return Finding(
        id="delegate-overhead",
        title=f"{percent(share)}% of the time is inside delegate calls but in none of their operators",
        severity=severity(share),
        subject=subject(dump),
        evidence={
            "share_pct": percent(share),
            "median_ms": round(float(np.median(dump.breakdown.delegate_overhead)) / 1e6, 6),
            "delegate_calls": dump.delegate_calls,
            "operators": sum(operator.delegated for operator in dump.operators),
            "operators_below_1us": _below_clock(dump),
        },
        max_gain_pct=percent(share),
        action="fewer and larger delegate calls cost less to enter; profiling itself adds a little per "
        "operator, so check the latency without a dump as well",
    )


def _portable_operators(dump: DumpAnalysis) -> Finding | None:
    portable = largest(dump, lambda operator: not operator.delegated)
    share = sum(share_of(dump, operator) for operator in portable)
    if share < _PORTABLE_SHARE:
        return None
    return Finding(
        id="portable-operators",
        title=f"operators outside delegates take {percent(share)}% of the time",
        severity=severity(share),
        subject=subject(dump),
        evidence={"count": len(portable), "share_pct": percent(share), "largest": shown(dump, portable)},
        max_gain_pct=percent(share),
        action="portable kernels run on one thread without SIMD tuning: replace these operators with ones "
        "the backend supports, or export them so that it takes them",
    )


def _quantization(dump: DumpAnalysis) -> Finding | None:
    converting = largest(dump, lambda operator: operator.kind in ("quantize", "dequantize", "convert"))
    share = sum(share_of(dump, operator) for operator in converting)
    if share < 0.02:
        return None
    return Finding(
        id="quantize-dequantize",
        title=f"converting between number formats takes {percent(share)}% of the time",
        severity=severity(share),
        subject=subject(dump),
        evidence={"count": len(converting), "share_pct": percent(share), "largest": shown(dump, converting)},
        max_gain_pct=percent(share),
        action="quantize the operators between the conversions too, so that data stays in one format; feed "
        "quantized input if the application has it",
    )


def _below_roof(dump: DumpAnalysis, supplied: Roofline | None) -> Finding | None:
    roof = supplied or seen_roofline(dump.operators)
    if roof is None:
        return None
    low = [
        gap
        for gap in roof_gaps(dump.operators, roof)
        if gap.efficiency < _FAR_BELOW and share_of(dump, gap.operator) >= 0.02
    ]
    gain = sum(share_of(dump, gap.operator) * gap.most_saved for gap in low)
    if not low:
        return None
    operators = "1 operator" if len(low) == 1 else f"{len(low)} operators"
    return Finding(
        id="below-roofline",
        title=f"{operators} below {_FAR_BELOW:.0%} of the roofline ({roof.source})",
        severity=severity(gain),
        subject=subject(dump),
        evidence={
            "roof_gflops": round(roof.gflops, 3),
            "roof_gbytes_per_s": round(roof.gbytes_per_s, 3),
            "roof_source": roof.source,
            "operators": [
                {
                    **described(dump, gap.operator),
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


def _between(dump: DumpAnalysis, operator: Operator) -> list[str]:
    """The nearest operators before and after it in its call that come from the model."""
    call = [one for one in dump.operators if (one.method, one.call) == (operator.method, operator.call)]
    before = [one for one in call if one.position < operator.position and one.origin == "model"]
    after = [one for one in call if one.position > operator.position and one.origin == "model"]
    return [
        before[-1].place if before else "the call's input",
        after[0].place if after else "the call's output",
    ]
