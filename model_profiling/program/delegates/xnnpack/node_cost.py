"""What a node of an XNNPACK graph costs."""

from __future__ import annotations

from model_profiling.program import cost
from model_profiling.program.cost import Tensors, last_size
from model_profiling.program.records import Window

_MOVES = {
    "StaticTranspose", "StaticReshape", "StaticConstantPad", "StaticSlice", "Copy", "Convert",
    "Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5",
}  # fmt: skip


def bytes_moved(inputs: Tensors, outputs: Tensors) -> int:
    """Weights of half-precision operators are stored as fp32 and halved when they are loaded."""
    moved = cost.bytes_moved(inputs, outputs)
    if inputs and inputs[0].dtype == "fp16":
        moved -= sum(each.nbytes // 2 for each in inputs if each.constant and each.dtype == "fp32")
    return moved


def node_flops(kind: str, inputs: Tensors, outputs: Tensors, window: Window | None) -> int:
    """Operations of one execution."""
    if kind in _MOVES or not inputs or not outputs:
        return 0
    if window is not None:
        return _window_flops(kind, inputs[0].elements, outputs[0].elements, window)
    return _RULES.get(kind, cost.EACH_OUTPUT)(inputs, outputs)


def _window_flops(kind: str, taken: int, made: int, window: Window) -> int:
    taps = window.kernel[0] * window.kernel[1]
    if kind == "ConvTranspose2d":
        return 2 * taken * taps * window.group_output_channels
    if kind == "Conv2d":
        return 2 * made * taps * window.group_input_channels
    return (2 if kind == "DepthwiseConv2d" else 1) * made * taps


def _attention(inputs: Tensors, outputs: Tensors) -> int:
    """Scores, their softmax, and the weighted sum of the values."""
    keys = inputs[1].shape[-2] if len(inputs) > 1 and len(inputs[1].shape) > 1 else 1
    scores = inputs[0].elements // max(last_size(inputs[0]), 1) * keys
    return 2 * scores * last_size(inputs[0]) + 5 * scores + 2 * outputs[0].elements * keys


_RULES: dict[str, cost.Rule] = {
    "FullyConnected": cost.product,
    "BatchMatrixMultiply": cost.product,
    "ScaledDotProductAttention": _attention,
    "Softmax": cost.SOFTMAX,
    "StaticResizeBilinear2D": cost.BILINEAR,
    "GlobalAvgPooling2d": cost.per_input,
}
