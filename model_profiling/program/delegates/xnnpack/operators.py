"""Classifies XNNPACK's operators by the names of their events and the nodes these come from."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

from model_profiling.program.category import UNKNOWN, Category, OperatorClass, operator_type, rows
from model_profiling.program.delegates.xnnpack.sme_paths import (
    has_one_input_channel,
    is_pointwise,
    matrix_path,
    node_miss,
)
from model_profiling.program.records import GraphNode, dtype_in_words

_CONV, _GEMM, _MOVE, _ELEM, _OTHER = Category

# XNNPACK's operator types, without the layout and data types in parentheses.
_TYPES = {
    **rows(_CONV, "convolution", "Convolution"),
    **rows(_CONV, "transposed convolution", "Deconvolution"),
    **rows(_GEMM, "linear", "Fully Connected"),
    **rows(_GEMM, "matmul", "Dynamic Fully Connected, Batch Matrix Multiply"),
    **rows(_MOVE, "transpose", "Transpose"),
    **rows(_MOVE, "copy", "Copy"),
    **rows(_MOVE, "reshape", "Static Reshape, Static Expand Dims, Fuse Dims, Split Dims"),
    **rows(_MOVE, "slice", "Slice"),
    **rows(_MOVE, "pad", "Constant Pad"),
    **rows(_MOVE, "rearrange", "Depth To Space, Space To Depth"),
    **rows(_MOVE, "pack", "Pack LH"),
    **rows(_MOVE, "convert", "Convert"),
    **rows(_ELEM, "binary", "Add, Subtract, Multiply, Divide, Maximum, Minimum, Squared Difference, Power"),
    **rows(_ELEM, "binary", "Modulus, ATan2, Copy Sign, Bitwise And, Bitwise Or, Bitwise Xor"),
    **rows(_ELEM, "binary", "Shift Left, Shift Right Arithmetic, Shift Right Logical"),
    **rows(_ELEM, "binary", "Binary Elementwise, Invalid Binary Op"),
    **rows(_ELEM, "activation", "Clamp, HardSwish, LeakyReLU, PReLU, ELU, GELU, ApproxGELU, Sigmoid, TanH"),
    **rows(_ELEM, "unary", "Abs, Bankders Rounding, Bankers Rounding, Bitwise Not, Ceiling, Cosine, Exp"),
    **rows(_ELEM, "unary", "Floor, Count Leading Zeros, Cube Root, Log, Negate, Population Count, Sign"),
    **rows(_ELEM, "unary", "Sine, Square, Square Root, Reciprocal Square Root"),
    **rows(_ELEM, "unary", "Unary Elementwise, Invalid Unary Op"),
    **rows(_OTHER, "pooling", "Average Pooling, Max Pooling, ArgMax Pooling"),
    **rows(_OTHER, "pooling", "Global Average Pooling, Unpooling"),
    **rows(_OTHER, "reduction", "Mean, Mean Squared, Sum, Reduce Max, Reduce Min"),
    **rows(_OTHER, "softmax", "Softmax"),
    **rows(_OTHER, "normalization", "Normalize"),
    **rows(_OTHER, "resize", "Resize Bilinear"),
    **rows(_OTHER, "position encoding", "RoPE"),
}  # fmt: skip

# Nodes whose kind overrides the operator's name: a 1x1 convolution runs as Fully Connected, and quantized
# activations lose their name.
_NODE_KINDS = {
    "Conv2d": (_CONV, "convolution"),
    "DepthwiseConv2d": (_CONV, "depthwise convolution"),
    "ConvTranspose2d": (_CONV, "transposed convolution"),
    "FullyConnected": (_GEMM, "linear"),
    "BatchMatrixMultiply": (_GEMM, "matmul"),
    **rows(_ELEM, "activation", "Hardswish, Clamp, Sigmoid, ELU, LeakyReLU, PReLU, Gelu, Tanh"),
}

# Nodes that run as a copy, and what the model meant by them.
_COPYING = {
    **dict.fromkeys(("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"), "concatenate"),
    "StaticReshape": "reshape",
}

# The kernel of a convolution says more than its type.
_CONVOLUTION_KERNELS = {
    "DWConv": "depthwise convolution",
    "GEMM": "pointwise convolution",
    "VMulCAddC": "channel scale",
}

# Packing and layout steps for a node are not the node's own arithmetic.
_SIDE_STEPS = frozenset({"pack", "transpose", "copy", "convert"})

_NAME = re.compile(
    r"(?P<type>[A-Z][A-Za-z0-9 ]*?)(?: \((?P<detail>[A-Z0-9, ]+)\)(?: (?P<kernel>\w[\w ]*))?)?"
)
_LAYOUTS = frozenset({"NC", "ND", "NHWC", "NCHW", "NTHC", "NCHW2NHWC"})

# The data type that a label proves, and the node kinds for which it does so.
_LABEL_DTYPES = {
    "F16": "fp16", "PF16": "fp16", "F32": "fp32", "PF32": "fp32", "QS8": "qint8", "QC8": "qint8",
}  # fmt: skip
_COMPUTING = frozenset({"Conv2d", "DepthwiseConv2d", "FullyConnected"})

_PACKED_LABELS = ("PF", "PQ", "QP")
# The arithmetic that a label stands for; X8, X16 and X32 are data that is only moved.
_PRECISIONS = {
    **dict.fromkeys(("F32", "PF32"), "fp32"),
    **dict.fromkeys(("F16", "PF16"), "fp16"),
    "BF16": "bf16",
    **dict.fromkeys(("QS8", "QU8", "PQS8", "QC8"), "int8"),
    **dict.fromkeys(("QD8", "QDU8", "QP8"), "int8 dynamic"),
}
_WEIGHT_BITS = {"QC8W": "int8", "QC4W": "int4", "QB4W": "int4", "QC2W": "int2"}


def describe(event: str, node: GraphNode | None = None) -> OperatorClass:
    """Classify an operator; its node, which shows what the model meant, overrides the name."""
    what = _by_name(event)
    if node is None or not what.known:
        return what
    if node.kind in _COMPUTING:
        what = replace(what, dtype=_LABEL_DTYPES.get(what.family.partition(", ")[0], ""))
    if what.matrix is not None and what.matrix.takes_sme is not True:
        what = replace(what, matrix=replace(what.matrix, miss=node_miss(what.matrix, node)))
    if what.kind == "convert":
        own = node.kind == "Convert"
        return _conversion(what, node) if own else replace(what, preparation=True)
    if what.kind == "activation" and _NODE_KINDS.get(node.kind, (_OTHER, ""))[1] != "activation":
        return replace(what, ends_node=True)
    if what.kind == "copy" and node.kind in _COPYING:
        return replace(what, kind=_COPYING[node.kind])
    if node.kind not in _NODE_KINDS or what.kind in _SIDE_STEPS:
        return what
    category, kind = _NODE_KINDS[_meant(node)]
    if node.kind == "Conv2d":
        kind = "pointwise convolution" if what.kind in ("linear", "pointwise convolution") else what.kind
    return replace(what, category=category, kind=kind)


def multiplies(node: GraphNode) -> tuple[Category, str] | None:
    if node.kind == "ScaledDotProductAttention":
        return _GEMM, "attention"
    if is_pointwise(node):
        return _CONV, "pointwise convolution"
    category, kind = _NODE_KINDS.get(_meant(node), (_OTHER, ""))
    return (category, kind) if category in (_CONV, _GEMM) else None


def _meant(node: GraphNode) -> str:
    """The kind of node that the model meant."""
    return "Conv2d" if has_one_input_channel(node) else node.kind


@functools.lru_cache(maxsize=4096)
def _by_name(event: str) -> OperatorClass:
    parts = _NAME.fullmatch(operator_type(event))
    if parts is None or parts["type"] not in _TYPES:
        return UNKNOWN
    (category, kind), path = _TYPES[parts["type"]], parts["kernel"] or ""
    if kind == "convolution":
        kind = _CONVOLUTION_KERNELS.get(path, kind)
    labels = [part for part in (parts["detail"] or "").split(", ") if part not in _LAYOUTS]
    multiplies = category in (_CONV, _GEMM) and any(labels)
    return OperatorClass(
        category,
        kind,
        family=", ".join(labels),
        packed=any(label.startswith(_PACKED_LABELS) for label in labels),
        preparation=kind == "pack",
        matrix=matrix_path(parts["type"], path, labels) if multiplies else None,
        precision=_precision(kind, labels),
    )


def _precision(kind: str, labels: Sequence[str]) -> str:
    """The precision in words: both sides of a conversion, and the weights' if it differs from the input's."""
    known = [_PRECISIONS[label] for label in labels if label in _PRECISIONS]
    if not known:
        return ""
    if kind == "convert" and len(known) > 1:
        return f"{known[0]} to {known[1]}"
    bits = next((_WEIGHT_BITS[label] for label in labels if label in _WEIGHT_BITS), "")
    return f"{known[0]}, {bits} weights" if bits and not known[0].startswith(bits) else known[0]


def _conversion(what: OperatorClass, node: GraphNode) -> OperatorClass:
    given, made = node.dtype, node.outputs[0].dtype if node.outputs else ""
    quantized = given.startswith("q"), made.startswith("q")
    kind = {(False, True): "quantize", (True, False): "dequantize"}.get(quantized, "convert")
    precision = what.precision or f"{dtype_in_words(given)} to {dtype_in_words(made)}"
    return replace(what, kind=kind, precision=precision)
