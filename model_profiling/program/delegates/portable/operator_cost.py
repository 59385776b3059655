"""What an operator outside delegates costs."""

from __future__ import annotations

import math

from model_profiling.program import cost
from model_profiling.program.category import Category
from model_profiling.program.cost import Tensors
from model_profiling.program.delegates.portable.operators import describe

_POOLING_OPERATORS = {"aten::avg_pool2d", "aten::max_pool2d", "aten::max_pool2d_with_indices"}

# What they do follows the size of their input, however little they put out.
_REDUCING_OPERATORS = (
    "_adaptive_avg_pool2d", "adaptive_avg_pool2d", "all", "amax", "amin", "any", "argmax", "argmin", "cumsum",
    "max", "max_pool2d_with_indices_backward", "mean", "min", "native_group_norm", "native_layer_norm",
    "prod", "sum", "topk", "var", "var_mean",
)  # fmt: skip


def slides_window(name: str) -> bool:
    """The operator is a pooling whose cost depends on its window, the first list of numbers it is given."""
    return name.partition(".")[0] in _POOLING_OPERATORS


def counts_products(name: str) -> bool:
    """The arithmetic of the operator is counted as that of a matrix product or a convolution."""
    kind = name.partition("::")[2].partition(".")[0]
    return kind in ("convolution", "addmm", "baddbmm") or _RULES.get(kind) is cost.product


def operator_flops(name: str, inputs: Tensors, outputs: Tensors, *, transposed: bool, taps: int) -> int:
    """Operations of `aten::mean.out`, say; `taps` is the size of the window it slides, where it does."""
    if describe(name).category is Category.DATA_MOVEMENT or not inputs or not outputs:
        return 0
    if slides_window(name):
        return outputs[0].elements * taps
    kind = name.partition("::")[2].partition(".")[0]
    if kind == "convolution" and len(inputs) > 1:
        positions = inputs[0] if transposed else outputs[0]
        return 2 * positions.elements * math.prod(inputs[1].shape[1:])
    if kind in ("addmm", "baddbmm"):
        return cost.product(inputs[1:], outputs)
    return _RULES.get(kind, cost.EACH_OUTPUT)(inputs, outputs)


_RULES: dict[str, cost.Rule] = {
    **dict.fromkeys(("mm", "bmm", "linear", "matmul"), cost.product),
    **dict.fromkeys(("_softmax", "_log_softmax"), cost.SOFTMAX),
    **dict.fromkeys(_REDUCING_OPERATORS, cost.per_input),
    "upsample_bilinear2d": cost.BILINEAR,
}
