"""Why XNNPACK's matrix operators take no SME2 path, in words, and what decides about it.

XNNPACK decides in `xnn_subgraph_optimize_packed_lhs`, by operator and data types alone, not by shapes or
groups. The reasons were read there, as of ExecuTorch 1.5. They explain operators that were seen to miss SME2;
which ones reach it is read from recorded probes (`program/delegates/reach.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model_profiling.program.category import MatrixPath, Miss
from model_profiling.program.records import GraphNode

_SME_LABELS = frozenset({"PF16", "PF32", "PQS8"})
_MATMUL_PATHS = frozenset({"GEMM", "IGEMM"})
_DEPTHWISE_PATHS = frozenset({"DWConv", "VMulCAddC"})
_DYNAMIC = ("QD8", "QDU8")
_CONVOLUTIONS = ("Convolution", "Deconvolution")
_SCHEME = "quantization scheme"


@dataclass(frozen=True, slots=True)
class _Event:
    operation: str
    path: str
    labels: tuple[str, ...]

    @property
    def first(self) -> str:
        """The type of the input."""
        return self.labels[0]

    @property
    def weights(self) -> str:
        """How weights are quantized; empty if like the input."""
        return self.labels[-1] if self.labels[-1].endswith("W") else ""


# The first match counts.
_RULES: tuple[tuple[Callable[[_Event], bool], Miss], ...] = (
    (
        lambda event: event.path in _DEPTHWISE_PATHS,
        Miss("depthwise", "XNNPACK has no SME2 kernel for depthwise convolution"),
    ),
    (
        lambda event: event.operation == "Deconvolution" and event.first in ("F16", "F32"),
        Miss("dtype", "XNNPACK has SME2 kernels for transposed convolution in int8 only"),
    ),
    (
        lambda event: event.operation == "Fully Connected" and event.labels == ("QS8",),
        Miss(
            _SCHEME,
            (
                "XNNPACK's int8 SME2 kernels need one scale per output channel; these weights have one "
                "scale for all channels"
            ),
        ),
    ),
    (
        lambda event: event.operation == "Batch Matrix Multiply" and event.first == "QS8",
        Miss(
            "dynamic weight", "XNNPACK multiplies two activations on SME2 in fp32 and fp16 only, not in int8"
        ),
    ),
    (
        lambda event: event.first == "QU8",
        Miss("dtype", "XNNPACK has no SME2 kernels for unsigned 8-bit integers"),
    ),
    (lambda event: event.first == "BF16", Miss("dtype", "XNNPACK has no SME2 path for bf16")),
    (
        lambda event: "QP8" in event.labels and event.weights == "QB4W",
        Miss(_SCHEME, "XNNPACK has no SME2 kernel for 4-bit weights with a scale per block"),
    ),
    (
        lambda event: "QP8" in event.labels,
        Miss("not told", "not known: KleidiAI uses the same name for SME2, i8mm and dot product"),
    ),
    (
        lambda event: event.first in _DYNAMIC and event.operation in _CONVOLUTIONS,
        Miss(_SCHEME, "XNNPACK has no SME2 path for convolutions with inputs quantized at run time"),
    ),
    (
        lambda event: event.first in _DYNAMIC and "F16" in event.labels,
        Miss(
            _SCHEME,
            ("XNNPACK's SME2 path for inputs quantized at run time returns fp32; this operator returns fp16"),
        ),
    ),
    (
        lambda event: event.weights == "QC2W" or (event.first == "QS8" and event.weights == "QC4W"),
        Miss(_SCHEME, "XNNPACK has no SME2 path for weights of so few bits with such inputs"),
    ),
    (
        lambda event: bool(event.weights) and not event.first.startswith(("Q", "PQ")),
        Miss(_SCHEME, "XNNPACK has no SME2 path for quantized weights with inputs that are not quantized"),
    ),
)
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
    event = _Event(operation, path, tuple(labels))
    miss = next((miss for fits, miss in _RULES if fits(event)), None)
    if path not in _MATMUL_PATHS:
        return MatrixPath(operation, path, "depthwise" if path == "DWConv" else "convolution", None, miss)
    if not _SME_LABELS.isdisjoint(labels):
        return MatrixPath(operation, path, "matmul", True)
    return MatrixPath(operation, path, "matmul", None if "QP8" in labels else False, miss)


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
