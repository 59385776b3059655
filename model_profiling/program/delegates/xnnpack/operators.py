"""What XNNPACK's operators are, by the names of their events and the nodes these come from."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

from model_profiling.program.category import UNKNOWN, Category, MatrixPath, OperatorClass, operator_type, rows
from model_profiling.program.records import GraphNode

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

# What a node of an XNNPACK graph says beyond the operator's name: a 1x1 convolution runs as Fully Connected,
# and quantized activations lose their name. The graph knows what was meant, so it decides.
_NODE_KINDS = {
    "Conv2d": (_CONV, "convolution"),
    "DepthwiseConv2d": (_CONV, "depthwise convolution"),
    "ConvTranspose2d": (_CONV, "transposed convolution"),
    "FullyConnected": (_GEMM, "linear"),
    "BatchMatrixMultiply": (_GEMM, "matmul"),
    **rows(_ELEM, "activation", "Hardswish, Clamp, Sigmoid, ELU, LeakyReLU, PReLU, Gelu, Tanh"),
}

# What runs as a copy, by what was written: a `torch.cat` is nobody's clone.
_COPYING = {
    **dict.fromkeys(("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"), "concatenate"),
    "StaticReshape": "reshape",
}

# Which kernel an XNNPACK convolution runs on says more than its type.
_CONVOLUTION_KERNELS = {
    "DWConv": "depthwise convolution",
    "GEMM": "pointwise convolution",
    "VMulCAddC": "channel scale",
}

# Packing and layout steps made for a node are not the node's own arithmetic.
_SIDE_STEPS = frozenset({"pack", "transpose", "copy", "convert"})

_NAME = re.compile(
    r"(?P<type>[A-Z][A-Za-z0-9 ]*?)(?: \((?P<detail>[A-Z0-9, ]+)\)(?: (?P<kernel>\w[\w ]*))?)?"
)
_LAYOUTS = frozenset({"NC", "ND", "NHWC", "NCHW", "NTHC", "NCHW2NHWC"})

# What a label says about the data it works on, and on which nodes, where that leaves no doubt.
_LABEL_DTYPES = {
    "F16": "fp16", "PF16": "fp16", "F32": "fp32", "PF32": "fp32", "QS8": "qint8", "QC8": "qint8",
}  # fmt: skip
_COMPUTING = frozenset({"Conv2d", "DepthwiseConv2d", "FullyConnected"})

_PACKED_LABELS = ("PF", "PQ", "QP")
_SME_LABELS = frozenset({"PF16", "PF32", "PQS8"})
_MATMUL_PATHS = frozenset({"GEMM", "IGEMM"})
_DEPTHWISE_PATHS = frozenset({"DWConv", "VMulCAddC"})


def describe(event: str, node: GraphNode | None = None) -> OperatorClass:
    """The class of an operator; the node it comes from knows what was meant, so it decides."""
    what = _by_name(event)
    if node is None or not what.known:
        return what
    if node.kind in _COMPUTING:
        what = replace(what, dtype=_LABEL_DTYPES.get(what.family.partition(", ")[0], ""))
    if what.matrix is not None and what.matrix.takes_sme is False and not what.matrix.why_not:
        what = replace(what, matrix=replace(what.matrix, why_not=_why_this_node_not(what.matrix, node)))
    if what.kind == "convert" and node.kind == "Convert":
        return replace(what, kind=_conversion(node))
    if what.kind == "copy" and node.kind in _COPYING:
        return replace(what, kind=_COPYING[node.kind])
    if node.kind not in _NODE_KINDS or what.kind in _SIDE_STEPS:
        return what
    category, kind = _NODE_KINDS[node.kind]
    if node.kind == "Conv2d":
        kind = "pointwise convolution" if what.kind in ("linear", "pointwise convolution") else what.kind
    return replace(what, category=category, kind=kind)


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
        matrix=_matrix_path(parts["type"], path, labels) if multiplies else None,
    )


def _matrix_path(operation: str, path: str, labels: Sequence[str]) -> MatrixPath:
    """Only PF16, PF32 and PQS8 on the GEMM and IGEMM paths prove SME or SME2, and not which of the two: a
    convolution keeps its label on the depthwise path, and QP8 also runs on i8mm and dot product. The other
    labels of those paths are XNNPACK's own kernels, which use neither.
    """
    why_not = _why_not_sme(operation, path, labels)
    if path not in _MATMUL_PATHS:
        return MatrixPath(operation, path, "depthwise" if path == "DWConv" else "convolution", None, why_not)
    if not _SME_LABELS.isdisjoint(labels):
        return MatrixPath(operation, path, "matmul", True)
    return MatrixPath(operation, path, "matmul", None if "QP8" in labels else False, why_not)


def _why_not_sme(operation: str, path: str, labels: Sequence[str]) -> str:
    """What XNNPACK's sources say: `xnn_subgraph_optimize_packed_lhs` chooses the packed paths, by operator
    and data type alone, and the tables of depthwise kernels name none for SME."""
    if path in _DEPTHWISE_PATHS:
        return "XNNPACK has no SME2 kernel for depthwise convolution"
    if operation == "Deconvolution" and labels[0] in ("F16", "F32"):
        return "XNNPACK has SME2 kernels for transposed convolution in int8 only"
    if operation == "Fully Connected" and labels == ["QS8"]:
        return "XNNPACK's int8 SME2 kernels want a scale per output channel; these weights have one for all"
    if labels[0] == "QU8":
        return "XNNPACK has no SME2 kernels for unsigned 8-bit integers"
    if "QP8" in labels:
        return "not told: KleidiAI runs it on SME2, i8mm or dot product under one name"
    return ""


def _why_this_node_not(path: MatrixPath, node: GraphNode) -> str:
    """What only the node's tensors tell: for fp16, linear layers want fp16 weights, convolutions do not."""
    weights = node.inputs[1].dtype if len(node.inputs) > 1 else ""
    if path.operation == "Fully Connected" and node.dtype == "fp16" and weights == "fp32":
        if node.kind == "Conv2d":
            return (
                "XNNPACK runs 1x1 convolutions as Fully Connected, whose fp16 SME2 path wants fp16 weights; "
                "ExecuTorch stores a convolution's as fp32"
            )
        return "XNNPACK's fp16 SME2 path for Fully Connected wants fp16 weights; these are stored as fp32"
    return ""


def _conversion(node: GraphNode) -> str:
    quantized = [tensor.dtype.startswith("q") for tensor in (*node.inputs[:1], *node.outputs[:1])]
    if quantized == [False, True]:
        return "quantize"
    return "dequantize" if quantized == [True, False] else "convert"
