"""Matrix operators in delegates that use the machine badly."""

from __future__ import annotations

from math import prod

from model_profiling.analysis.categories import Category
from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, rounded, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.program.category import MATRIX
from model_profiling.wording import plural

_FAR_BELOW = 0.25
_FEW_ROWS = 8
_FEW_CHANNELS = 16
_LARGE_WINDOW = 25
_SHORT_SUM = 4


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
        and gap.operator.category in MATRIX
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
        f"Look at {plural(len(low), 'matrix operator')} that {'uses' if len(low) == 1 else 'use'} the "
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


_UNEXPLAINED = "neither arithmetic nor memory binds it: look at which kernels run in it, and at other threads"


def _faster(operator: Operator) -> str:
    """What may bring a matrix operator nearer to the roof."""
    if operator.kind == "depthwise convolution":
        return (
            "a depthwise convolution does little arithmetic for each byte: a plain one of fewer channels may "
            "be faster"
        )
    if operator.source.groups > 1:
        return f"{operator.source.groups} groups make small matrices: use fewer"
    shape = operator.source.output_shape
    if not shape:
        return _UNEXPLAINED
    return _faster_product(operator) if operator.category is Category.GEMM else _faster_convolution(operator)


def _faster_convolution(operator: Operator) -> str:
    shape, window = operator.source.output_shape, operator.source.kernel_size or (1, 1)
    inputs = operator.source.input_shapes[0] if operator.source.input_shapes else ()
    # Patches that do not overlap, as those of vision transformers, are read once.
    overlaps = not inputs or prod(inputs[:-1]) < prod(shape[:-1]) * prod(window)
    if prod(window) > _LARGE_WINDOW and overlaps:
        return (
            f"a {window[0]}x{window[1]} window reads its input many times over: smaller ones in a row do less"
        )
    if shape[-1] < _FEW_CHANNELS:
        return f"{plural(shape[-1], 'output channel')} do not fill a tile: more of them cost little"
    if inputs and inputs[-1] < _SHORT_SUM:
        return (
            f"{plural(inputs[-1], 'input channel')} make short sums: fold pixels into channels (space to "
            "depth) before it"
        )
    if prod(shape[:-1]) < _FEW_ROWS:
        return "so small an image gives its weights little to do: several inputs at once use them more often"
    return _UNEXPLAINED


def _faster_product(operator: Operator) -> str:
    shape = operator.source.output_shape
    if operator.kind == "matmul":
        return "a batch of small products fills no tile: fewer and larger heads, or a fused attention"
    rows = prod(shape[:-1])
    if rows == 1:
        return (
            "a single row is bound by reading the weights: a smaller number format reads less, several "
            "inputs at once read them once"
        )
    if rows < _FEW_ROWS:
        return f"{rows} rows are few for the weights they read: give it more inputs at once"
    if shape[-1] < _FEW_CHANNELS:
        return f"{plural(shape[-1], 'output')} do not fill a tile: join it with a layer of the same input"
    return _UNEXPLAINED
