"""The interface of a backend, and the backend without a graph: the runtime's own kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_profiling.program import category
from model_profiling.program.category import (
    SCALAR_READ,
    SIZE,
    UNKNOWN,
    Category,
    OperatorClass,
    Tensors,
    operator_type,
    rows,
)
from model_profiling.program.records import GraphNode, Tensor

Payload = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Graph:
    """A delegate's payload, as far as it is understood."""

    nodes: tuple[GraphNode, ...] = ()
    output_count: int = 0
    arguments: tuple[tuple[int, int], ...] = ()
    """Position among a call's arguments, and the value id in this graph."""


class Backend:
    """A backend's knowledge about itself; the defaults are those of an unknown backend."""

    name: str = ""
    undivided: frozenset[str] = frozenset()
    """Kinds of node that always run as one operator each: their number tells programs apart."""

    def read_graph(self, payload: Payload, source: str, origin: int) -> Graph:
        """Read a payload that begins at byte `origin` of `source`; raise FormatError if it is damaged."""
        del payload, source, origin
        return Graph()

    def resized(self, graph: Graph, resized: Callable[[Tensor], Tensor]) -> Graph:
        """The graph with each tensor as `resized` makes it, and the work that this means."""
        del resized
        return graph

    def align(self, nodes: Sequence[GraphNode], events: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """For each event of a call, the indexes of the nodes it stands for, the main one first."""
        del nodes
        return ((),) * len(events)

    def ran_in(self, events: Sequence[str], mains: Sequence[GraphNode | None]) -> tuple[str, ...]:
        """The type that each event of a call computed in: its node's, unless the backend chose another."""
        del events
        return tuple(node.dtype if node else "" for node in mains)

    def describe(self, event: str, node: GraphNode | None = None) -> OperatorClass:
        """Classify an operator by the name of its event and the main node of that event."""
        del event, node
        return UNKNOWN

    def multiplies(self, node: GraphNode) -> tuple[Category, str] | None:
        """Category and kind of a node that multiplies matrices; None for any other."""
        del node
        return None

    def path_of(self, node: GraphNode) -> str:
        """The kind of a node that multiplies matrices, as finely as kernels differ; empty if unknown."""
        del node
        return ""


# ExecuTorch's own kernels, which run what no delegate took: their classes and costs by name.

_CONV, _GEMM, _MOVE, _ELEM, _OTHER = Category

# ExecuTorch's kernels, without namespace, overload and the suffix _copy.
_KERNELS = {
    **rows(_CONV, "convolution", "convolution, convolution_backward, conv1d, conv2d, conv3d"),
    **rows(_GEMM, "linear", "linear, addmm, mixed_linear, linear_8da4w, quantized_moe_ffn"),
    **rows(_GEMM, "matmul", "mm, bmm, matmul, mixed_mm, baddbmm"),
    **rows(_GEMM, "attention", "sdpa_with_kv_cache, custom_sdpa, scaled_dot_product_attention"),
    **rows(_GEMM, "attention", "custom_quantized_sdpa, gated_delta_rule, channelwise_gated_delta_rule"),
    **rows(_MOVE, "transpose", "permute, transpose, t"),
    **rows(_MOVE, "reshape", "view, et_view, reshape, squeeze, unsqueeze, flatten, alias, detach"),
    **rows(_MOVE, "reshape", "lift_fresh, as_strided, expand, view_as_real, diagonal"),
    **rows(_MOVE, "copy", "copy, copy_, clone, _clone_dim_order, _to_dim_order"),
    **rows(_MOVE, "copy", "_to, update_cache, update_cache_with_indices, _d2h, _h2d, et_copy_index"),
    **rows(_MOVE, "copy", "fallback"),  # marks where export_llm divides a model
    **rows(_MOVE, "concatenate", "cat, stack"),
    **rows(_MOVE, "slice", "slice, select, split, split_with_sizes, unbind, narrow, unfold"),
    **rows(_MOVE, "pad", "constant_pad_nd, reflection_pad1d, reflection_pad2d, reflection_pad3d"),
    **rows(_MOVE, "pad", "replication_pad1d, replication_pad2d, replication_pad3d"),
    **rows(_MOVE, "gather", "gather, index, index_select, embedding, masked_select, nonzero"),
    **rows(_MOVE, "gather", "embedding_byte, embedding_2bit, embedding_4bit, embedding_xbit"),
    **rows(_MOVE, "scatter", "scatter, scatter_add, index_put, index_put_, masked_scatter, select_scatter"),
    **rows(_MOVE, "scatter", "slice_scatter"),
    **rows(_MOVE, "rearrange", "pixel_shuffle, pixel_unshuffle, flip, roll, repeat, repeat_interleave"),
    **rows(_MOVE, "rearrange", "tile_crop"),
    **rows(_MOVE, "quantize", "quantize_per_tensor, quantize_per_channel, quantize_per_token"),
    **rows(_MOVE, "dequantize", "dequantize_per_tensor, dequantize_per_channel, dequantize_per_token"),
    **rows(_MOVE, "fill", "fill, full, full_like, zeros, ones"),
    **rows(_MOVE, "fill", "empty, _empty_dim_order, arange, scalar_tensor"),
    **rows(_ELEM, "binary", "add, sub, rsub, mul, div, floor_divide, fmod, remainder, pow, atan2, maximum"),
    **rows(_ELEM, "binary", "minimum, bitwise_and, bitwise_or, bitwise_xor, bitwise_left_shift, mod"),
    **rows(_ELEM, "binary", "bitwise_right_shift, logical_and, logical_or, logical_xor, floordiv, truediv"),
    **rows(_ELEM, "comparison", "eq, ne, lt, le, gt, ge, isinf, isnan, where, masked_fill"),
    **rows(_ELEM, "activation", "relu, hardtanh, clamp, elu, gelu, glu, leaky_relu, sigmoid, tanh, logit"),
    **rows(_ELEM, "activation", "hardswish, hardsigmoid, silu, native_dropout"),
    **rows(_ELEM, "unary", "abs, acos, acosh, asin, asinh, atan, atanh, bitwise_not, ceil, cos, cosh, erf"),
    **rows(_ELEM, "unary", "exp, expm1, floor, log, log10, log1p, log2, logical_not, neg, reciprocal, round"),
    **rows(_ELEM, "unary", "rsqrt, sign, sin, sinh, sqrt, tan, trunc, tril, triu, _conj_physical, square"),
    **rows(_OTHER, "pooling", "avg_pool2d, max_pool2d_with_indices, max_pool2d_with_indices_backward"),
    **rows(_OTHER, "pooling", "_adaptive_avg_pool2d, adaptive_avg_pool2d"),
    **rows(_OTHER, "reduction", "mean, sum, amax, amin, any, argmax, argmin, max, min, prod, var, var_mean"),
    **rows(_OTHER, "reduction", "cumsum, topk, sort"),
    **rows(_OTHER, "normalization", "native_layer_norm, native_group_norm, _native_batch_norm_legit"),
    **rows(_OTHER, "normalization", "_native_batch_norm_legit_no_training, rms_norm"),
    **rows(_OTHER, "softmax", "_softmax, _log_softmax, softmax"),
    **rows(_OTHER, "resize", "upsample_bilinear2d, upsample_nearest2d"),
    **rows(_OTHER, "resize", "_upsample_bilinear2d_aa, grid_sampler_2d"),
    **rows(_OTHER, "distance", "_cdist_forward, _pdist_forward"),
    **rows(_OTHER, "fourier transform", "_fft_c2r, _fft_r2c"),
    **rows(_OTHER, "hadamard transform", "fast_hadamard_transform"),
    **rows(_OTHER, "random", "rand, randn"),
    **rows(_OTHER, SCALAR_READ, "_local_scalar_dense"),
    **rows(_OTHER, SIZE, "sym_size, sym_numel, sym_stride, sym_float, sym_int, sym_max, sym_min, sym_not"),
    **rows(_OTHER, SIZE, "sym_ite"),
    **rows(_OTHER, "quantization parameters", "choose_qparams, choose_qparams_per_token_asymmetric"),
}  # fmt: skip

_NAME = re.compile(
    r"(?:native_call_|(?:\w+::)|(?:aten|quantized_decomposed|dim_order_ops)[._])?"
    r"(?P<op>\w+?)(?:_copy)?(?:\.\w+|_default|_tensor)?"
)  # fmt: skip


def describe(event: str, node: GraphNode | None = None) -> OperatorClass:
    """The class of a kernel: `native_call_add.out`, `aten::add.out`, `aten_add_tensor`."""
    del node
    plain = operator_type(event)
    parts = _NAME.fullmatch(plain)
    found = parts and (_KERNELS.get(parts["op"]) or _KERNELS.get(plain.removeprefix("native_call_")))
    return OperatorClass(*found) if found else UNKNOWN


_POOLING_OPERATORS = {"aten::avg_pool2d", "aten::max_pool2d", "aten::max_pool2d_with_indices"}

# Their work depends on the size of the input, not of the output.
_REDUCING_OPERATORS = (
    "_adaptive_avg_pool2d", "adaptive_avg_pool2d", "all", "amax", "amin", "any", "argmax", "argmin", "cumsum",
    "max", "max_pool2d_with_indices_backward", "mean", "min", "native_group_norm", "native_layer_norm",
    "prod", "sum", "topk", "var", "var_mean",
)  # fmt: skip


def slides_window(name: str) -> bool:
    """Whether it is a pooling, whose cost depends on its window: its first list of numbers."""
    return name.partition(".")[0] in _POOLING_OPERATORS


def counts_products(name: str) -> bool:
    """Whether its arithmetic counts as that of a matrix product or a convolution."""
    kind = name.partition("::")[2].partition(".")[0]
    return kind in ("convolution", "addmm", "baddbmm") or _RULES.get(kind) is category.product


def operator_flops(name: str, inputs: Tensors, outputs: Tensors, *, transposed: bool, taps: int) -> int:
    """Operations of, for example, `aten::mean.out`; `taps` is the size of a pooling's window."""
    if describe(name).category is Category.DATA_MOVEMENT or not inputs or not outputs:
        return 0
    if slides_window(name):
        return outputs[0].elements * taps
    kind = name.partition("::")[2].partition(".")[0]
    if kind == "convolution" and len(inputs) > 1:
        positions = inputs[0] if transposed else outputs[0]
        return 2 * positions.elements * math.prod(inputs[1].shape[1:])
    if kind in ("addmm", "baddbmm"):
        return category.product(inputs[1:], outputs)
    return _RULES.get(kind, category.EACH_OUTPUT)(inputs, outputs)


_RULES: dict[str, category.Rule] = {
    **dict.fromkeys(("mm", "bmm", "linear", "matmul"), category.product),
    **dict.fromkeys(("_softmax", "_log_softmax"), category.SOFTMAX),
    **dict.fromkeys(_REDUCING_OPERATORS, category.per_input),
    "upsample_bilinear2d": category.BILINEAR,
}


class Portable(Backend):
    name = "portable"
    describe = staticmethod(describe)
