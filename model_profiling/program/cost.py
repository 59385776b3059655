"""What an operator costs: arithmetic operations and bytes moved, from its shapes alone.

A multiply and an add count as two operations, whatever the type. Data movement counts none. Everything
that works element by element counts one per element, also where the hardware needs several instructions,
so that achieved rates of such operators are lower bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from model_profiling.program.records import Tensor, Window

_MOVES = {
    "StaticTranspose", "StaticReshape", "StaticConstantPad", "StaticSlice", "Copy",
    "Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5",
}  # fmt: skip

_MOVING_OPERATORS = {
    "_to_copy", "_to_dim_order_copy", "_clone_dim_order", "alias_copy", "arange", "as_strided_copy", "cat",
    "clone", "constant_pad_nd", "copy", "detach_copy", "diagonal_copy", "embedding", "empty", "expand_copy",
    "fill", "flip", "full", "full_like", "gather", "index", "index_put", "index_select", "masked_fill",
    "ones", "permute_copy", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d",
    "repeat",
    "replication_pad2d", "roll", "scatter", "select_copy", "select_scatter", "slice_copy", "slice_scatter",
    "split_copy", "split_with_sizes_copy", "squeeze_copy", "stack", "t_copy", "transpose_copy", "unbind_copy",
    "unfold_copy", "unsqueeze_copy", "view_copy", "zeros", "sym_size", "upsample_nearest2d",
}  # fmt: skip

_POOLING_OPERATORS = {"aten::avg_pool2d", "aten::max_pool2d", "aten::max_pool2d_with_indices"}

# What they do follows the size of their input, however little they put out.
_REDUCING_OPERATORS = (
    "_adaptive_avg_pool2d", "adaptive_avg_pool2d", "all", "amax", "amin", "any", "argmax", "argmin", "cumsum",
    "max", "max_pool2d_with_indices_backward", "mean", "min", "native_group_norm", "native_layer_norm",
    "prod", "sum", "topk", "var", "var_mean",
)  # fmt: skip

Tensors = Sequence[Tensor]


def bytes_moved(inputs: Tensors, outputs: Tensors) -> int:
    """Every input, weight and output once: the least that has to travel.

    XNNPACK stores the weights of half-precision operators as fp32 and halves them when it loads them.
    """
    moved = sum(each.nbytes for each in (*inputs, *outputs))
    if inputs and inputs[0].dtype == "fp16":
        moved -= sum(each.nbytes // 2 for each in inputs if each.constant and each.dtype == "fp32")
    return moved


def node_flops(kind: str, inputs: Tensors, outputs: Tensors, window: Window | None) -> int:
    """Operations of an XNNPACK node."""
    if kind in _MOVES or not inputs or not outputs:
        return 0
    if window is not None:
        return _window_flops(kind, inputs[0].elements, outputs[0].elements, window)
    rule = _NODE_RULES.get(kind, _per_output)
    return rule(inputs, outputs)


def operator_cost(
    name: str, inputs: Tensors, outputs: Tensors, *, transposed: bool, taps: int
) -> tuple[int, int]:
    """Operations and bytes of an operator outside delegates, such as `aten::mean.out`.

    `taps` is the size of the window it slides, where `slides_window`.
    """
    return _operator_flops(name, inputs, outputs, transposed, taps), bytes_moved(inputs, outputs)


def slides_window(name: str) -> bool:
    """The operator is a pooling whose cost depends on its window, the first list of numbers it is given."""
    return name.partition(".")[0] in _POOLING_OPERATORS


def _operator_flops(name: str, inputs: Tensors, outputs: Tensors, transposed: bool, taps: int) -> int:
    kind = name.partition("::")[2].partition(".")[0]
    if kind in _MOVING_OPERATORS or not inputs or not outputs:
        return 0
    if slides_window(name):
        return outputs[0].elements * taps
    if kind == "convolution" and len(inputs) > 1:
        positions = inputs[0] if transposed else outputs[0]
        return 2 * positions.elements * math.prod(inputs[1].shape[1:])
    if kind == "addmm":
        return _product(inputs[1:], outputs)
    rule = _OPERATOR_RULES.get(kind, _per_output)
    return rule(inputs, outputs)


def _window_flops(kind: str, taken: int, made: int, window: Window) -> int:
    taps = window.kernel[0] * window.kernel[1]
    if kind == "ConvTranspose2d":
        return 2 * taken * taps * window.group_output_channels
    if kind == "Conv2d":
        return 2 * made * taps * window.group_input_channels
    return (2 if kind == "DepthwiseConv2d" else 1) * made * taps


def _per_output(inputs: Tensors, outputs: Tensors) -> int:
    del inputs
    return outputs[0].elements


def _per_input(inputs: Tensors, outputs: Tensors) -> int:
    del outputs
    return inputs[0].elements


def _product(inputs: Tensors, outputs: Tensors) -> int:
    """A matrix product: each output is a sum as long as the first input's last dimension."""
    return 2 * outputs[0].elements * _last(inputs[0]) if inputs else 0


def _softmax(inputs: Tensors, outputs: Tensors) -> int:
    """Largest element, subtract, exponential, sum, divide."""
    del inputs
    return 5 * outputs[0].elements


def _bilinear(inputs: Tensors, outputs: Tensors) -> int:
    """Four neighbours, a multiply and an add each."""
    del inputs
    return 8 * outputs[0].elements


def _attention(inputs: Tensors, outputs: Tensors) -> int:
    """Scores, their softmax, and the weighted sum of the values."""
    keys = inputs[1].shape[-2] if len(inputs) > 1 and len(inputs[1].shape) > 1 else 1
    scores = inputs[0].elements // max(_last(inputs[0]), 1) * keys
    return 2 * scores * _last(inputs[0]) + 5 * scores + 2 * outputs[0].elements * keys


def _last(tensor: Tensor) -> int:
    return tensor.shape[-1] if tensor.shape else 1


_Rule = Callable[[Tensors, Tensors], int]

_NODE_RULES: dict[str, _Rule] = {
    "FullyConnected": _product,
    "BatchMatrixMultiply": _product,
    "ScaledDotProductAttention": _attention,
    "Softmax": _softmax,
    "StaticResizeBilinear2D": _bilinear,
    "GlobalAvgPooling2d": _per_input,
}

_OPERATOR_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("mm", "bmm", "linear", "matmul"), _product),
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(_REDUCING_OPERATORS, _per_input),
    "upsample_bilinear2d": _bilinear,
}
