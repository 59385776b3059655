"""Matrix operators in delegates that use the machine badly."""

from __future__ import annotations

from math import prod

from model_profiling.analysis.categories import Category
from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, rounded, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.wording import plural

_FAR_BELOW = 0.25
_MATRIX = (Category.CONV, Category.GEMM)


def below_roof(seen: Seen) -> Finding | None:
    if not seen.timed:
        return None
    series = seen.series
    roof = seen.roof or seen_roofline(series.operators)
    if roof is None:
        return None
    low = [
        gap
        for gap in roof_gaps(series.operators, roof)
        if gap.efficiency < _FAR_BELOW
        and gap.operator.delegated
        and gap.operator.category in _MATRIX
        and gap.operator.identity not in seen.claimed
        and series.spent_by([gap.operator]).share >= WORTH
    ]
    if not low:
        return None
    low.sort(key=lambda gap: -gap.operator.typical_ms * gap.most_saved)
    saved = sum(series.spent_by([gap.operator]).ms * gap.most_saved for gap in low)
    ways = dict.fromkeys(_faster(gap.operator) for gap in low)
    return Finding(
        "below-roofline",
        f"Reshape {plural(len(low), 'matrix operator')} that {'uses' if len(low) == 1 else 'use'} the "
        "machine badly",
        "; ".join(ways),
        series,
        tuple(_below(gap, roof) for gap in low),
        {
            "roof_gflops": round(roof.gflops, 3),
            "roof_gbytes_per_s": round(roof.gbytes_per_s, 3),
            "roof_source": roof.source,
        },
        seen.gain_pct(saved),
    )


def _below(gap: RoofGap, roof: Roofline) -> Concern:
    return Concern(
        (gap.operator,),
        where(gap.operator),
        f"{100 * gap.efficiency:.1f}% of the roof ({roof.source})",
        {
            "efficiency_pct": percent(gap.efficiency),
            "gflops": rounded(gap.operator.gflops),
            "gbytes_per_s": rounded(gap.operator.gbytes_per_s),
        },
    )


def _faster(operator: Operator) -> str:
    """What may bring a matrix operator nearer to the roof."""
    shape = operator.source.output_shape
    if operator.kind == "depthwise convolution":
        return (
            "a depthwise convolution does little arithmetic for each byte: a plain one of fewer channels may "
            "be faster"
        )
    if operator.source.groups > 1:
        return f"{operator.source.groups} groups make small matrices: use fewer"
    if shape and prod(shape[:-1]) == 1 and operator.category is Category.GEMM:
        return "a single row is bound by reading the weights: a smaller number format reads less"
    return "small or odd shapes leave vectors empty: make channels multiples of 16, or batch small matrices"
