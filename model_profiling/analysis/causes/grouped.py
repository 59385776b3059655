"""Depthwise and grouped convolutions that run as an indirect matrix product, a small one for each group."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from model_profiling.analysis.causes.seen import Seen
from model_profiling.analysis.findings import Concern, Finding, percent, rounded, where
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.roofline import roof_gaps, seen_roofline
from model_profiling.wording import plural

_LARGEST_WINDOW = 25
"""XNNPACK's depthwise kernels take windows of up to 3, 4, 9 or 25 elements (`dwconv-config.c`), in fp32, fp16
and int8, where each group has one input and one output channel (`convolution-nhwc.c`); all else is IGEMM."""
_FEW_CHANNELS = 16
"""Of a group: with less, a matrix product leaves most of its tile empty."""


def depthwise_as_igemm(seen: Seen) -> Finding | None:
    slow = seen.largest(_runs_as_product)
    if not slow or not seen.matters(slow):
        return None
    roof = seen.roof or seen_roofline(seen.series.operators)
    gaps = roof_gaps(slow, roof) if roof and seen.timed else ()
    efficiency = {gap.operator.identity: gap.efficiency for gap in gaps}
    saved = sum(each.typical_ms * (1 - efficiency.get(each.identity, 0.0)) for each in slow)
    kinds = {"depthwise" if _per_group(each)[0] == 1 else "grouped" for each in slow}
    named = "depthwise" if kinds == {"depthwise"} else "grouped"
    return Finding(
        "depthwise-as-igemm",
        f"Give {plural(len(slow), f'{named} convolution')} a shape that XNNPACK has kernels for",
        "; ".join(_instead(slow)),
        seen.series,
        tuple(_concern(each, efficiency.get(each.identity)) for each in slow),
        {"roof_source": roof.source} if efficiency and roof else {},
        seen.gain_pct(saved),
    )


def _runs_as_product(operator: Operator) -> bool:
    """The event's name says IGEMM, and its groups are too small for one."""
    if not operator.delegated or operator.source.groups < 2 or not operator.type.endswith("IGEMM"):
        return False
    inputs, outputs = _per_group(operator)
    return 0 < outputs < _FEW_CHANNELS and inputs > 0


def _per_group(operator: Operator) -> tuple[int, int]:
    """Input and output channels of each group; XNNPACK's images have their channels last."""
    source = operator.source
    given = source.input_shapes[0][-1] if source.input_shapes and source.input_shapes[0] else 0
    made = source.output_shape[-1] if source.output_shape else 0
    return given // source.groups, made // source.groups


def _instead(slow: Sequence[Operator]) -> list[str]:
    ways = []
    windows = [_window(each) for each in slow if _per_group(each) == (1, 1)]
    if any(window > _LARGEST_WINDOW for window in windows):
        ways.append(
            f"XNNPACK's depthwise kernels take windows of up to {_LARGEST_WINDOW} elements (5x5): smaller "
            "windows, several in a row, see as far as a large one"
        )
    if any(_per_group(each)[0] == 1 and _per_group(each)[1] > 1 for each in slow):
        ways.append(
            "its depthwise kernels give one output for each input channel: repeat the channels by a 1x1 "
            "convolution instead of a depth multiplier"
        )
    if any(_per_group(each)[0] > 1 for each in slow):
        ways.append(
            f"groups of fewer than {_FEW_CHANNELS} channels leave the tiles of a matrix product mostly "
            "empty: fewer and wider groups, or none"
        )
    return ways or ["a plain convolution of fewer channels may be faster"]


def _window(operator: Operator) -> int:
    return prod(operator.source.kernel_size or (0,))


def _concern(operator: Operator, efficiency: float | None) -> Concern:
    inputs, outputs = _per_group(operator)
    kernel = "x".join(str(side) for side in operator.source.kernel_size or ())
    shape = f"{kernel}, {operator.source.groups} groups of {inputs} to {plural(outputs, 'channel')}"
    seen = "" if efficiency is None else f", {100 * efficiency:.1f}% of the roof"
    return Concern(
        (operator,),
        where(operator),
        f"{shape}{seen}",
        {
            "kernel_size": list(operator.source.kernel_size or ()),
            "groups": operator.source.groups,
            "efficiency_pct": None if efficiency is None else percent(efficiency),
            "gflops": rounded(operator.gflops),
        },
    )
