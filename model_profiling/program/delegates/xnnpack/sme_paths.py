"""Why XNNPACK's matrix operators take no SME2 path, in words, and what decides about it.

XNNPACK decides in `xnn_subgraph_optimize_packed_lhs`, by operator and data types alone, not by shapes or
groups. The reasons were read there, as of ExecuTorch 1.5. They explain operators that were seen to miss SME2;
which ones reach it is read from recorded probes (`program/matrix_work.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from model_profiling.program.category import MatrixPath, Miss
from model_profiling.program.records import GraphNode

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
