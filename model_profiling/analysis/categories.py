"""What an operator does, from its name: the one table behind every category and kind the kit shows.

It knows XNNPACK's operator types, ExecuTorch's native calls and the nodes of XNNPACK graphs. A name it does
not know is `Other` and is reported as unknown, so that nothing disappears into a catch-all unseen.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum


class Category(str, Enum):
    """The five categories; the value is the name used in files."""

    CONV = "Convolution"
    GEMM = "GEMM"
    DATA_MOVEMENT = "Data Movement"
    ELEMENTWISE = "Elementwise"
    OTHER = "Other"

    @property
    def label(self) -> str:
        """The short name used in tables for people."""
        return "CONV" if self is Category.CONV else self.value


@dataclass(frozen=True, slots=True)
class OperatorClass:
    """What is known about an operator from its name (and, where there is one, its graph node)."""

    category: Category
    kind: str
    """Finer than the category: `depthwise convolution`, `transpose`, `quantize` ..."""
    family: str
    """XNNPACK's data types of the kernel: `F16`, `PF16`, `QS8, QC8W`; empty where the name has none."""
    known: bool
    """The table has a row for it."""

    @property
    def packed(self) -> bool:
        """The operator runs through KleidiAI's packed path (PF16, PF32, PQS8, QP8)."""
        return any(part.startswith(("PF", "PQ", "QP")) for part in self.family.split(", "))


_Row = tuple[Category, str]
_CONV, _GEMM, _MOVE, _ELEM, _OTHER = Category


def _rows(category: Category, kind: str, names: str) -> dict[str, _Row]:
    return {name.strip(): (category, kind) for name in names.split(",")}


# XNNPACK's operator types, without the layout and data types in parentheses.
_XNNPACK: dict[str, _Row] = {
    **_rows(_CONV, "convolution", "Convolution"),
    **_rows(_CONV, "transposed convolution", "Deconvolution"),
    **_rows(_GEMM, "linear", "Fully Connected"),
    **_rows(_GEMM, "matmul", "Dynamic Fully Connected, Batch Matrix Multiply"),
    **_rows(_MOVE, "transpose", "Transpose"),
    **_rows(_MOVE, "copy", "Copy"),
    **_rows(_MOVE, "reshape", "Static Reshape, Static Expand Dims, Fuse Dims, Split Dims"),
    **_rows(_MOVE, "slice", "Slice"),
    **_rows(_MOVE, "pad", "Constant Pad"),
    **_rows(_MOVE, "rearrange", "Depth To Space, Space To Depth"),
    **_rows(_MOVE, "pack", "Pack LH"),
    **_rows(_MOVE, "convert", "Convert"),
    **_rows(_ELEM, "binary", "Add, Subtract, Multiply, Divide, Maximum, Minimum, Squared Difference, Power"),
    **_rows(_ELEM, "binary", "Modulus, ATan2, Copy Sign, Bitwise And, Bitwise Or, Bitwise Xor"),
    **_rows(_ELEM, "binary", "Shift Left, Shift Right Arithmetic, Shift Right Logical"),
    **_rows(_ELEM, "binary", "Binary Elementwise, Invalid Binary Op"),
    **_rows(_ELEM, "activation", "Clamp, HardSwish, LeakyReLU, PReLU, ELU, GELU, ApproxGELU, Sigmoid, TanH"),
    **_rows(_ELEM, "unary", "Abs, Bankders Rounding, Bankers Rounding, Bitwise Not"),
    **_rows(_ELEM, "unary", "Ceiling, Cosine, Exp, Floor"),
    **_rows(_ELEM, "unary", "Count Leading Zeros, Cube Root, Log, Negate"),
    **_rows(_ELEM, "unary", "Population Count, Sign, Sine, Square"),
    **_rows(_ELEM, "unary", "Reciprocal Square Root, Square Root, Unary Elementwise, Invalid Unary Op"),
    **_rows(_OTHER, "pooling", "Average Pooling, Max Pooling, ArgMax Pooling"),
    **_rows(_OTHER, "pooling", "Global Average Pooling, Unpooling"),
    **_rows(_OTHER, "reduction", "Mean, Mean Squared, Sum, Reduce Max, Reduce Min"),
    **_rows(_OTHER, "softmax", "Softmax"),
    **_rows(_OTHER, "normalization", "Normalize"),
    **_rows(_OTHER, "resize", "Resize Bilinear"),
    **_rows(_OTHER, "position encoding", "RoPE"),
}  # fmt: skip

# ExecuTorch's kernels, without namespace, overload and the suffix _copy.
_NATIVE: dict[str, _Row] = {
    **_rows(_CONV, "convolution", "convolution, convolution_backward, conv1d, conv2d, conv3d"),
    **_rows(_GEMM, "linear", "linear, addmm, mixed_linear, linear_8da4w"),
    **_rows(_GEMM, "matmul", "mm, bmm, matmul, mixed_mm, baddbmm"),
    **_rows(_GEMM, "attention", "sdpa_with_kv_cache, custom_sdpa, scaled_dot_product_attention"),
    **_rows(_MOVE, "transpose", "permute, transpose, t"),
    **_rows(_MOVE, "reshape", "view, et_view, reshape, squeeze, unsqueeze"),
    **_rows(_MOVE, "reshape", "flatten, alias, detach, lift_fresh"),
    **_rows(_MOVE, "reshape", "as_strided, expand, view_as_real, diagonal"),
    **_rows(_MOVE, "copy", "copy, copy_, clone, _clone_dim_order, _to_dim_order"),
    **_rows(_MOVE, "copy", "_to, update_cache, _d2h, _h2d"),
    **_rows(_MOVE, "concatenate", "cat, stack"),
    **_rows(_MOVE, "slice", "slice, select, split, split_with_sizes, unbind, narrow, unfold"),
    **_rows(_MOVE, "pad", "constant_pad_nd, reflection_pad1d, reflection_pad2d, reflection_pad3d"),
    **_rows(_MOVE, "pad", "replication_pad1d, replication_pad2d, replication_pad3d"),
    **_rows(_MOVE, "gather", "gather, index, index_select, embedding, masked_select, nonzero"),
    **_rows(_MOVE, "gather", "embedding_byte, embedding_2bit, embedding_4bit, embedding_xbit"),
    **_rows(_MOVE, "scatter", "scatter, scatter_add, index_put, index_put_, masked_scatter, select_scatter"),
    **_rows(_MOVE, "scatter", "slice_scatter"),
    **_rows(_MOVE, "rearrange", "pixel_shuffle, pixel_unshuffle, flip, roll, repeat, repeat_interleave"),
    **_rows(_MOVE, "quantize", "quantize_per_tensor, quantize_per_channel, quantize_per_token"),
    **_rows(_MOVE, "dequantize", "dequantize_per_tensor, dequantize_per_channel, dequantize_per_token"),
    **_rows(_MOVE, "fill", "fill, full, full_like, zeros, ones"),
    **_rows(_MOVE, "fill", "empty, _empty_dim_order, arange, scalar_tensor"),
    **_rows(_ELEM, "binary", "add, sub, rsub, mul, div, floor_divide, fmod, remainder, pow, atan2, maximum"),
    **_rows(_ELEM, "binary", "minimum, bitwise_and, bitwise_or, bitwise_xor, bitwise_left_shift"),
    **_rows(_ELEM, "binary", "bitwise_right_shift, logical_and, logical_or, logical_xor"),
    **_rows(_ELEM, "comparison", "eq, ne, lt, le, gt, ge, isinf, isnan, where, masked_fill"),
    **_rows(_ELEM, "activation", "relu, hardtanh, clamp, elu, gelu, glu, leaky_relu, sigmoid, tanh, logit"),
    **_rows(_ELEM, "activation", "hardswish, hardsigmoid, silu, native_dropout"),
    **_rows(_ELEM, "unary", "abs, acos, acosh, asin, asinh, atan, atanh"),
    **_rows(_ELEM, "unary", "bitwise_not, ceil, cos, cosh, erf, exp"),
    **_rows(_ELEM, "unary", "expm1, floor, log, log10, log1p, log2"),
    **_rows(_ELEM, "unary", "logical_not, neg, reciprocal, round, rsqrt"),
    **_rows(_ELEM, "unary", "sign, sin, sinh, sqrt, tan, trunc, tril, triu, _conj_physical, square"),
    **_rows(_OTHER, "pooling", "avg_pool2d, max_pool2d_with_indices, max_pool2d_with_indices_backward"),
    **_rows(_OTHER, "pooling", "_adaptive_avg_pool2d, adaptive_avg_pool2d"),
    **_rows(_OTHER, "reduction", "mean, sum, amax, amin, any, argmax, argmin, max, min, prod, var, var_mean"),
    **_rows(_OTHER, "reduction", "cumsum, topk, sort"),
    **_rows(_OTHER, "normalization", "native_layer_norm, native_group_norm, _native_batch_norm_legit"),
    **_rows(_OTHER, "normalization", "_native_batch_norm_legit_no_training, rms_norm"),
    **_rows(_OTHER, "softmax", "_softmax, _log_softmax, softmax"),
    **_rows(_OTHER, "resize", "upsample_bilinear2d, upsample_nearest2d"),
    **_rows(_OTHER, "resize", "_upsample_bilinear2d_aa, grid_sampler_2d"),
    **_rows(_OTHER, "distance", "_cdist_forward, _pdist_forward"),
    **_rows(_OTHER, "fourier transform", "_fft_c2r, _fft_r2c"),
    **_rows(_OTHER, "random", "rand, randn"),
    **_rows(_OTHER, "quantization parameters", "choose_qparams, choose_qparams_per_token_asymmetric"),
}  # fmt: skip

# What a node of an XNNPACK graph says beyond the operator's name: a 1x1 convolution runs as Fully Connected,
# and quantized activations lose their name. The graph knows what was meant, so it decides.
_GRAPH: dict[str, _Row] = {
    "Conv2d": (_CONV, "convolution"),
    "DepthwiseConv2d": (_CONV, "depthwise convolution"),
    "ConvTranspose2d": (_CONV, "transposed convolution"),
    "FullyConnected": (_GEMM, "linear"),
    "BatchMatrixMultiply": (_GEMM, "matmul"),
    **_rows(_ELEM, "activation", "Hardswish, Clamp, Sigmoid, ELU, LeakyReLU, PReLU, Gelu, Tanh"),
}

# Which kernel an XNNPACK convolution runs on says more than its type.
_CONVOLUTION_KERNELS = {
    "DWConv": "depthwise convolution",
    "GEMM": "pointwise convolution",
    "VMulCAddC": "channel scale",
}

_XNNPACK_NAME = re.compile(
    r"(?P<type>[A-Z][A-Za-z0-9 ]*?)(?: \((?P<detail>[A-Z0-9, ]+)\)(?: (?P<kernel>\w[\w ]*))?)?"
)
_LAYOUTS = frozenset({"NC", "ND", "NHWC", "NCHW", "NTHC", "NCHW2NHWC"})
_NATIVE_NAME = re.compile(
    r"(?:native_call_|(?:\w+::)|(?:aten|quantized_decomposed|dim_order_ops)[._])?"
    r"(?P<op>\w+?)(?:_copy)?(?:\.\w+|_default|_tensor)?"
)  # fmt: skip


def operator_type(name: str) -> str:
    """The name without the counter that tells equal operators apart: `Transpose (ND, X32)`."""
    head, mark, counter = name.rpartition(" #")
    return head if mark and counter.isdigit() else name


@functools.lru_cache(maxsize=4096)
def classify(name: str, node_kind: str = "") -> OperatorClass:
    """The class of an operator by its event's name; `node_kind` is the kind of its graph node, if known."""
    plain = operator_type(name)
    parts = _XNNPACK_NAME.fullmatch(plain)
    if parts and parts["type"] in _XNNPACK:
        row, kernel = _XNNPACK[parts["type"]], parts["kernel"] or ""
        if row[1] == "convolution":
            row = (row[0], _CONVOLUTION_KERNELS.get(kernel, row[1]))
        family = ", ".join(part for part in (parts["detail"] or "").split(", ") if part not in _LAYOUTS)
        return _with_graph(row, plain, node_kind, family)
    native = _NATIVE_NAME.fullmatch(plain)
    found = native and (_NATIVE.get(native["op"]) or _NATIVE.get(plain.removeprefix("native_call_")))
    if found:
        return OperatorClass(*found, family="", known=True)
    return OperatorClass(Category.OTHER, "unknown", family="", known=False)


def _with_graph(row: _Row, plain: str, node_kind: str, family: str) -> OperatorClass:
    meant = _GRAPH.get(node_kind)
    if meant is None or row[1] in ("pack", "transpose", "copy", "convert"):
        # Packing and layout steps made for a node are not the node's own arithmetic.
        return OperatorClass(*row, family=family, known=True)
    category, kind = meant
    if node_kind == "Conv2d":
        pointwise = plain.startswith("Fully Connected") or row[1] == "pointwise convolution"
        kind = "pointwise convolution" if pointwise else row[1]
    return OperatorClass(category, kind, family=family, known=True)
