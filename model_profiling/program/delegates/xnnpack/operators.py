"""Classifies XNNPACK's operators by the names of their events and the nodes these come from, and says why
matrix operators take no SME2 path."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

from model_profiling.program.category import (
    UNKNOWN,
    Category,
    MatrixPath,
    Miss,
    OperatorClass,
    operator_type,
    rows,
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


# XNNPACK decides in `xnn_subgraph_optimize_packed_lhs`, by operator and data types alone, not by shapes or
# groups. The reasons were read there, as of ExecuTorch 1.5. They explain operators that were seen to miss
# SME2; which ones reach it is read from recorded probes (`program/matrix_work.py`).

_SME_LABELS = frozenset({"PF16", "PF32", "PQS8"})
_MATMUL_PATHS = frozenset({"GEMM", "IGEMM"})
_DEPTHWISE_PATHS = frozenset({"DWConv", "VMulCAddC"})
_CONVOLUTIONS = ("Convolution", "Deconvolution")
_SCHEME = "quantization scheme"
_NO = "XNNPACK has no"
_TRANSPOSED = "XNNPACK has SME2 kernels for transposed convolution in int8 only"
_ONE_SCALE = (
    "XNNPACK's int8 SME2 kernels need one scale per output channel; these weights have one scale for all "
    "channels"
)
_ACTIVATIONS = "XNNPACK multiplies two activations on SME2 in fp32 and fp16 only, not in int8"
_SHARED_NAME = "not known: KleidiAI uses the same name for SME2, i8mm and dot product"
_RUN_TIME_CONVOLUTION = f"{_NO} SME2 path for convolutions with inputs quantized at run time"
_RETURNS_FP32 = (
    "XNNPACK's SME2 path for inputs quantized at run time returns fp32; this operator returns fp16"
)
_WEIGHTS_ALONE = f"{_NO} SME2 path for quantized weights with inputs that are not quantized"
_ONE_CHANNEL = Miss(
    "one input channel",
    "a convolution with one input channel is lowered as a depthwise one, which has no SME2 kernel",
)


def matrix_path(operation: str, path: str, labels: Sequence[str]) -> MatrixPath:
    """Classify a matrix operator's path.

    Only PF16, PF32 and PQS8 on the GEMM and IGEMM paths prove SME or SME2, without saying which: a
    convolution keeps its label on the depthwise path, and QP8 also runs on i8mm and dot product. The other
    labels of those paths are XNNPACK's own kernels, which use neither.
    """
    miss = _named_miss(operation, path, labels)
    if path not in _MATMUL_PATHS:
        return MatrixPath(operation, path, "depthwise" if path == "DWConv" else "convolution", None, miss)
    if not _SME_LABELS.isdisjoint(labels):
        return MatrixPath(operation, path, "matmul", True)
    return MatrixPath(operation, path, "matmul", None if "QP8" in labels else False, miss)


def _named_miss(operation: str, path: str, labels: Sequence[str]) -> Miss | None:
    """Why an operator of this name takes no SME2 path, if the name shows it; the first reason counts."""
    given, last = labels[0], labels[-1]
    weights = last if last.endswith("W") else ""  # else they are quantized like the input
    dynamic, packed = given in ("QD8", "QDU8"), "QP8" in labels
    few_bits = weights == "QC2W" or (given == "QS8" and weights == "QC4W")
    linear, product = operation == "Fully Connected", operation == "Batch Matrix Multiply"
    unquantized = not given.startswith(("Q", "PQ"))
    reasons = (
        (path in _DEPTHWISE_PATHS, "depthwise", f"{_NO} SME2 kernel for depthwise convolution"),
        (operation == "Deconvolution" and given in ("F16", "F32"), "dtype", _TRANSPOSED),
        (linear and list(labels) == ["QS8"], _SCHEME, _ONE_SCALE),
        (product and given == "QS8", "dynamic weight", _ACTIVATIONS),
        (given == "QU8", "dtype", f"{_NO} SME2 kernels for unsigned 8-bit integers"),
        (given == "BF16", "dtype", f"{_NO} SME2 path for bf16"),
        (
            packed and weights == "QB4W",
            _SCHEME,
            f"{_NO} SME2 kernel for 4-bit weights with a scale per block",
        ),
        (packed, "not told", _SHARED_NAME),
        (dynamic and operation in _CONVOLUTIONS, _SCHEME, _RUN_TIME_CONVOLUTION),
        (dynamic and "F16" in labels, _SCHEME, _RETURNS_FP32),
        (few_bits, _SCHEME, f"{_NO} SME2 path for weights of so few bits with such inputs"),
        (bool(weights) and unquantized, _SCHEME, _WEIGHTS_ALONE),
    )
    return next((Miss(cause, words) for fits, cause, words in reasons if fits), None)


def node_miss(path: MatrixPath, node: GraphNode) -> Miss | None:
    """Why a path is no SME2 path, with what only the node shows: in fp16, linear layers need fp16 weights,
    convolutions do not."""
    if has_one_input_channel(node):
        return _ONE_CHANNEL
    if path.miss is not None or path.takes_sme is None:
        return path.miss
    if node.kind == "DepthwiseConv2d":
        return Miss(
            "depthwise",
            "XNNPACK has no SME2 path for depthwise convolutions, even where one runs as "
            f"{path.path or 'another kernel'}",
        )
    weights = node.inputs[1].dtype if len(node.inputs) > 1 else ""
    if path.operation == "Fully Connected" and node.dtype == "fp16" and weights == "fp32":
        if node.kind == "Conv2d":
            return Miss(
                "dtype",
                "XNNPACK runs 1x1 convolutions as Fully Connected, which needs fp16 weights for SME2, but "
                "ExecuTorch stores convolution weights as fp32",
            )
        return Miss(
            "dtype",
            "XNNPACK's fp16 SME2 path for Fully Connected needs fp16 weights; these are stored as fp32",
        )
    return None


def path_of(node: GraphNode) -> str:
    """What decides about the kernel of a matrix operator, besides its types."""
    window = node.window
    if is_pointwise(node):
        return "pointwise convolution"
    if node.kind == "Conv2d" and window is not None and window.groups > 1:
        return "grouped convolution"
    if has_one_input_channel(node):
        return "convolution with one input channel"
    return _PATHS.get(node.kind, "")


_PATHS = {
    "FullyConnected": "linear",
    "BatchMatrixMultiply": "matmul",
    "Conv2d": "convolution",
    "DepthwiseConv2d": "depthwise convolution",
    "ConvTranspose2d": "transposed convolution",
}


def has_one_input_channel(node: GraphNode) -> bool:
    """Whether it is a plain convolution that ExecuTorch stores as a depthwise one, because its single group
    has a single channel."""
    return node.kind == "DepthwiseConv2d" and node.window is not None and node.window.groups == 1


def is_pointwise(node: GraphNode) -> bool:
    """Whether it is a convolution that XNNPACK runs as Fully Connected."""
    window = node.window
    return (
        node.kind == "Conv2d"
        and window is not None
        and window.kernel == window.stride == (1, 1)
        and not any(window.padding)
        and window.groups == 1
    )
