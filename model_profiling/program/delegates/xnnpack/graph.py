"""Reads XNNPACK delegate payloads: the serialized graph, node by node."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import FlatBuffer, FlatTable
from model_profiling.program import category
from model_profiling.program.category import Tensors, last_size
from model_profiling.program.delegates.protocol import Graph, Payload
from model_profiling.program.records import GraphNode, Tensor, Window, tensor

_MOVES = {
    "StaticTranspose", "StaticReshape", "StaticConstantPad", "StaticSlice", "Copy", "Convert",
    "Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5",
}  # fmt: skip


def bytes_moved(inputs: Tensors, outputs: Tensors) -> int:
    """Bytes moved; half-precision operators store weights as fp32 and halve them when they are loaded."""
    moved = category.bytes_moved(inputs, outputs)
    if inputs and inputs[0].dtype == "fp16":
        moved -= sum(each.nbytes // 2 for each in inputs if each.constant and each.dtype == "fp32")
    return moved


def node_flops(kind: str, inputs: Tensors, outputs: Tensors, window: Window | None) -> int:
    if kind in _MOVES or not inputs or not outputs:
        return 0
    if window is None:
        return _RULES.get(kind, category.EACH_OUTPUT)(inputs, outputs)
    taps = window.kernel[0] * window.kernel[1]
    if kind == "ConvTranspose2d":
        return 2 * inputs[0].elements * taps * window.group_output_channels
    if kind == "Conv2d":
        return 2 * outputs[0].elements * taps * window.group_input_channels
    return (2 if kind == "DepthwiseConv2d" else 1) * outputs[0].elements * taps


def _attention(inputs: Tensors, outputs: Tensors) -> int:
    """Scores, their softmax, and the weighted sum of the values."""
    keys = inputs[1].shape[-2] if len(inputs) > 1 and len(inputs[1].shape) > 1 else 1
    scores = inputs[0].elements // max(last_size(inputs[0]), 1) * keys
    return 2 * scores * last_size(inputs[0]) + 5 * scores + 2 * outputs[0].elements * keys


_RULES: dict[str, category.Rule] = {
    "FullyConnected": category.product,
    "BatchMatrixMultiply": category.product,
    "ScaledDotProductAttention": _attention,
    "Softmax": category.SOFTMAX,
    "StaticResizeBilinear2D": category.BILINEAR,
    "GlobalAvgPooling2d": category.per_input,
}


_HEADER_MAGIC = b"XH00"
_GRAPH_MAGIC = b"XN0"
_INVALID_ID = 0xFFFFFFFF

_DTYPES = (
    "invalid", "fp32", "fp16", "qint8", "quint8", "qint32", "qcint8", "qcint32", "qcint4", "qdint8", "qbint4",
    "qpint8", "int32", "pfp32", "bf16",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which fields of a node's table hold what."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    window: str = ""
    permutation: int = -1


_ONE = _Layout(inputs=(0,), outputs=(1,))
_TWO = _Layout(inputs=(0, 1), outputs=(2,))
_CONVOLUTION = _Layout(inputs=(15, 16, 17), outputs=(18,), window="convolution")

# In the order of the schema's union, which numbers from 1.
_KINDS = (
    "Add", "FullyConnected", "Softmax", "Sigmoid", "StaticTranspose", "Clamp", "Conv2d", "Div",
    "StaticResizeBilinear2D", "StaticConstantPad", "AvgPooling2d", "Minimum", "DepthwiseConv2d",
    "MaxPooling2d", "Multiply", "Subtract", "Floor", "Convert", "GlobalAvgPooling2d", "StaticReshape",
    "ArgMaxPooling2d", "SquareRoot", "Ceiling", "Hardswish", "LeakyReLU", "Maximum", "Negate", "Square",
    "ELU", "Abs", "PReLU", "Concatenate2", "Concatenate3", "Concatenate4", "StaticSlice",
    "ScaledDotProductAttention", "BatchMatrixMultiply", "Concatenate5", "ConvTranspose2d",
    "ReciprocalSquareRoot", "Log", "Gelu", "Tanh", "Exp", "Sin", "Copy", "Cos",
)  # fmt: skip
_LAYOUTS = {
    **dict.fromkeys(("Add", "Div", "Minimum", "Multiply", "Subtract", "Maximum"), _TWO),
    **dict.fromkeys(("PReLU", "BatchMatrixMultiply"), _TWO),
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _CONVOLUTION),
    **dict.fromkeys(("AvgPooling2d", "MaxPooling2d"), _Layout(inputs=(10,), outputs=(11,), window="pooling")),
    **dict.fromkeys(("LeakyReLU", "ELU"), _Layout(inputs=(1,), outputs=(2,))),
    **dict.fromkeys(("StaticResizeBilinear2D", "StaticReshape"), _Layout(inputs=(2,), outputs=(3,))),
    **dict.fromkeys(("StaticConstantPad", "StaticSlice"), _Layout(inputs=(3,), outputs=(4,))),
    # The fifth input was added to the schema after the output.
    **{f"Concatenate{count}": _Layout((1, 2, 3, 4, 7)[:count], outputs=(5,)) for count in range(2, 6)},
    "FullyConnected": _Layout(inputs=(0, 1, 2), outputs=(3,)),
    "StaticTranspose": _Layout(inputs=(2,), outputs=(3,), permutation=1),
    "ArgMaxPooling2d": _Layout(inputs=(6,), outputs=(7, 8), window="argmax"),
    "ScaledDotProductAttention": _Layout(inputs=(0, 1, 2, 3, 4), outputs=(5,)),
}
"""Of all others: `_ONE`."""


def read_graph(payload: Payload, source: str, origin: int) -> Graph:
    """Read a delegate's payload, which begins at byte `origin` of the file `source`."""
    buffer = FlatBuffer(payload, source, origin)
    if payload[4:8].tobytes() == _HEADER_MAGIC:
        at = buffer.read("u32", 10, "an XNNPACK header")
        size = buffer.read("u32", 14, "an XNNPACK header")
        buffer = FlatBuffer(buffer.slice(at, size, "an XNNPACK graph"), source, origin + at)
    if buffer.data[4:7].tobytes() != _GRAPH_MAGIC:
        raise FormatError(
            f"{source} has an XNNPACK delegate of an unknown format at byte {origin}",
            "export the model again with the ExecuTorch release this kit names",
        )
    root = buffer.root(0, "an XNNPACK graph")
    entries = [_value(buffer, entry) for entry in root.tables(2, "an XNNPACK value")]
    values = {number: described for number, _, described in entries}
    outside = {number: position for number, position, _ in entries}
    nodes = tuple(
        _node(buffer, index, entry, values) for index, entry in enumerate(root.tables(1, "an XNNPACK node"))
    )
    taken = root.ints(4, "u32", "an XNNPACK graph's inputs")
    made = root.ints(5, "u32", "an XNNPACK graph's outputs")
    arguments = sorted((outside[number], number) for number in (*taken, *made) if number in outside)
    return Graph(nodes, len(made), tuple(arguments))


def resized(graph: Graph, resized: Callable[[Tensor], Tensor]) -> Graph:
    def at_size(node: GraphNode) -> GraphNode:
        inputs, outputs = tuple(map(resized, node.inputs)), tuple(map(resized, node.outputs))
        flops = node_flops(node.kind, inputs, outputs, node.window)
        moved = bytes_moved(inputs, outputs)
        return replace(node, inputs=inputs, outputs=outputs, flops=flops, bytes_moved=moved)

    return replace(graph, nodes=tuple(map(at_size, graph.nodes)))


def _value(buffer: FlatBuffer, entry: FlatTable) -> tuple[int, int, Tensor]:
    """A value's id, its position among a call's arguments (if it is one), and its tensor."""
    kind = entry.scalar(0, "u8")
    content = entry.table(1, "an XNNPACK value")
    if content is not None and kind == 2:
        content = content.table(0, "an XNNPACK value")
    if content is None or kind not in (1, 2):
        raise buffer.damaged("an XNNPACK value has no content", entry.at)
    number = content.scalar(0, "i16")
    if not 0 <= number < len(_DTYPES):
        raise buffer.damaged(f"an XNNPACK value has the unknown type {number}", content.at)
    constant = content.scalar(3, "u32") > 0
    described = tensor(buffer, content, 2, "u32", _DTYPES[number], constant=constant)
    return content.scalar(6, "u32"), content.scalar(4, "u32"), described


def _node(buffer: FlatBuffer, index: int, entry: FlatTable, values: dict[int, Tensor]) -> GraphNode:
    number = entry.scalar(0, "u8")
    content = entry.table(1, "an XNNPACK node")
    if content is None or not 1 <= number <= len(_KINDS):
        raise buffer.damaged(f"an XNNPACK node is of the unknown kind {number}", entry.at)
    kind = _KINDS[number - 1]
    layout = _LAYOUTS.get(kind, _ONE)
    input_ids = _ids(buffer, content, layout.inputs, values)
    output_ids = _ids(buffer, content, layout.outputs, values)
    inputs = tuple(values[number] for number in input_ids)
    outputs = tuple(values[number] for number in output_ids)
    window = _window(content, layout.window)
    permuted = layout.permutation >= 0
    return GraphNode(
        index=index,
        kind=kind,
        debug_handle=entry.scalar(2, "u32"),
        inputs=inputs,
        outputs=outputs,
        input_ids=input_ids,
        output_ids=output_ids,
        window=window,
        clamp=_clamp(entry),
        permutation=content.ints(layout.permutation, "u32", "a permutation") if permuted else (),
        flops=node_flops(kind, inputs, outputs, window),
        bytes_moved=bytes_moved(inputs, outputs),
    )


def _ids(
    buffer: FlatBuffer, content: FlatTable, fields: tuple[int, ...], values: dict[int, Tensor]
) -> tuple[int, ...]:
    """Ids of the values a node names; absent inputs (a bias, a mask) are left out."""
    ids = tuple(content.scalar(field, "u32") for field in fields)
    named = tuple(number for number in ids if number != _INVALID_ID)
    for number in named:
        if number not in values:
            raise buffer.damaged(f"an XNNPACK node uses value {number}, which does not exist,", content.at)
    return named


def _window(content: FlatTable, kind: str) -> Window | None:
    if not kind:
        return None
    top, right, bottom, left, height, width, *rest = (content.scalar(field, "u32") for field in range(13))
    padding, kernel = (top, right, bottom, left), (height, width)
    if kind == "argmax":
        return Window(kernel, stride=kernel, dilation=(1, 1), padding=padding)
    stride, dilation = (rest[0], rest[1]), (rest[2], rest[3])
    if kind == "pooling":
        return Window(kernel, stride, dilation, padding)
    return Window(kernel, stride, dilation, padding, rest[6], rest[4], rest[5])


def _clamp(entry: FlatTable) -> tuple[float | None, float | None] | None:
    limits = entry.table(3, "an XNNPACK node's limits")
    if limits is None:
        return None
    low, high = limits.real(0), limits.real(1)
    if math.isnan(low) or math.isnan(high):
        raise limits.buffer.damaged("an XNNPACK node's limits are not numbers", limits.at)
    limited = tuple(limit if math.isfinite(limit) else None for limit in (low, high))
    return None if limited == (None, None) else (limited[0], limited[1])
