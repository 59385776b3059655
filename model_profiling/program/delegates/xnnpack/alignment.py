"""Which nodes of an XNNPACK graph each event of a delegate call stands for.

XNNPACK's events carry no handle. They come in the order of the graph's nodes, but XNNPACK fuses some nodes
into others (clamps, conversions around a lookup table), drops some, splits some, and adds packing steps of
its own. The events are therefore laid along the nodes like two versions of a text: at the least cost, where
it costs nothing to pair an event with a node it can come from.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from model_profiling.program.delegates.xnnpack.operators import describe
from model_profiling.program.records import GraphNode

_UNARY = frozenset(
    {
        "Abs", "Ceiling", "Clamp", "Convert", "Cos", "ELU", "Exp", "Floor", "Gelu", "Hardswish", "LeakyReLU",
        "Log", "Negate", "ReciprocalSquareRoot", "Sigmoid", "Sin", "Square", "SquareRoot", "Tanh",
    }
)  # fmt: skip
_CONCATENATIONS = frozenset({"Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"})

# Event names up to their bracket and the kinds of node they can come from, where that is not just the kind of
# the same name.
_KINDS_OF_EVENT: dict[str, frozenset[str]] = {
    "ApproxGELU": frozenset({"Gelu"}),
    "ArgMax Pooling": frozenset({"ArgMaxPooling2d"}),
    "Average Pooling": frozenset({"AvgPooling2d", "GlobalAvgPooling2d"}),
    "Batch Matrix Multiply": frozenset({"BatchMatrixMultiply", "ScaledDotProductAttention"}),
    "Constant Pad": frozenset({"StaticConstantPad"}),
    "Convolution": frozenset({"Conv2d", "DepthwiseConv2d"}),
    "Copy": frozenset({"Copy", "StaticReshape", *_CONCATENATIONS}),
    "Cosine": frozenset({"Cos"}),
    "Deconvolution": frozenset({"ConvTranspose2d"}),
    "Divide": frozenset({"Div"}),
    "Dynamic Fully Connected": frozenset({"FullyConnected"}),
    "Fully Connected": frozenset({"FullyConnected", "Conv2d"}),
    "GELU": frozenset({"Gelu"}),
    "Global Average Pooling": frozenset({"GlobalAvgPooling2d"}),
    "HardSwish": frozenset({"Hardswish"}),
    "Invalid Unary Op": _UNARY,
    "Max Pooling": frozenset({"MaxPooling2d"}),
    "Mean": frozenset({"GlobalAvgPooling2d"}),
    "Resize Bilinear": frozenset({"StaticResizeBilinear2D"}),
    "Sine": frozenset({"Sin"}),
    "Slice": frozenset({"StaticSlice"}),
    "Softmax": frozenset({"Softmax", "ScaledDotProductAttention"}),
    # XNNPACK sees when something is multiplied by itself.
    "Square": frozenset({"Square", "Multiply"}),
    "Sum": frozenset({"GlobalAvgPooling2d"}),
    "TanH": frozenset({"Tanh"}),
    "Transpose": frozenset({"StaticTranspose"}),
    "Unary Elementwise": _UNARY,
}

_VANISHING_COST = dict.fromkeys(_UNARY, 3)
_VANISHING_COST |= {"Clamp": 1, "Convert": 1, "Copy": 1, "StaticReshape": 1, "StaticTranspose": 2}
_OTHER_VANISHING_COST = 8
# A second event for one node; common only where a node is carried out input by input.
_REPEAT_COST = 3
_STRANGE_EVENT_COST = 20
# How far the two sequences may drift apart beyond their difference in length.
_SLACK = 64


def align(nodes: Sequence[GraphNode], events: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """For each event the indexes (into `nodes`) of the nodes it stands for, the main one first.

    Nodes that were fused into another share its event. A packing event gets the nodes of the operator it
    packs for. An event that fits no node gets none.
    """
    types = [event.partition(" (")[0].partition(" #")[0] for event in events]
    kinds = [_KINDS_OF_EVENT.get(name, frozenset({name.replace(" ", "")})) for name in types]
    packing = [describe(event).preparation for event in events]
    main = _cheapest(nodes, kinds, packing)
    members: list[list[int]] = [[] if index is None else [index] for index in main]
    for node, event in _fused(nodes, main).items():
        members[event].append(node)
    following: list[int] = []
    for position in range(len(events) - 1, -1, -1):
        if packing[position]:
            members[position] = following
        else:
            following = members[position]
    return tuple(tuple(found) for found in members)


def _cheapest(
    nodes: Sequence[GraphNode], kinds: Sequence[frozenset[str]], packing: Sequence[bool]
) -> list[int | None]:
    """The main node of each event on the cheapest path through (events done, nodes done)."""
    last_event, last_node = len(kinds), len(nodes)
    most_ahead = max(last_node - last_event, 0) + _SLACK
    most_behind = max(last_event - last_node, 0) + _SLACK
    goal = (last_event, last_node)
    # Of equally cheap states the one furthest along goes first.
    queue: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]
    best: dict[tuple[int, int], int] = {(0, 0): 0}
    came_from: dict[tuple[int, int], tuple[int, int, int | None]] = {}
    while queue:
        cost, _, event, node = heapq.heappop(queue)
        if (event, node) == goal:
            break
        if cost > best[event, node]:
            continue
        for next_event, next_node, step, paired in _steps(nodes, kinds, packing, event, node):
            state = (next_event, next_node)
            if not -most_behind <= next_node - next_event <= most_ahead:
                continue
            if cost + step < best.get(state, 1 << 60):
                best[state] = cost + step
                came_from[state] = (event, node, paired)
                heapq.heappush(queue, (cost + step, -(next_event + next_node), *state))
    main: list[int | None] = [None] * last_event
    state = goal
    while state in came_from:
        event, node, paired = came_from[state]
        if state[0] > event:
            main[event] = paired
        state = (event, node)
    return main


def _steps(
    nodes: Sequence[GraphNode],
    kinds: Sequence[frozenset[str]],
    packing: Sequence[bool],
    event: int,
    node: int,
) -> Iterator[tuple[int, int, int, int | None]]:
    """What can come next: (events done, nodes done, cost, node paired with the event)."""
    if event < len(kinds):
        if node < len(nodes) and nodes[node].kind in kinds[event]:
            yield event + 1, node + 1, 0, node
        if node > 0 and nodes[node - 1].kind in kinds[event]:
            repeats = nodes[node - 1].kind in _CONCATENATIONS
            yield event + 1, node, 0 if repeats else _REPEAT_COST, node - 1
        yield event + 1, node, 0 if packing[event] else _STRANGE_EVENT_COST, None
    if node < len(nodes):
        yield event, node + 1, _VANISHING_COST.get(nodes[node].kind, _OTHER_VANISHING_COST), None


def _fused(nodes: Sequence[GraphNode], main: Sequence[int | None]) -> dict[int, int]:
    """For each node without an event of its own, the event of the node it was fused into, if any.

    Clamps and conversions to a quantized type end the operator before them; conversions from a quantized
    type and transposes begin the one after them; what else merely moves data is carried along by either.
    """
    event_of = {node: event for event, node in reversed(list(enumerate(main))) if node is not None}
    made_by = {number: place for place, node in enumerate(nodes) for number in node.output_ids}
    used_by = {number: place for place, node in reversed(list(enumerate(nodes))) for number in node.input_ids}
    left = [place for place in range(len(nodes)) if place not in event_of]
    for forward in (True, False):
        for place in left if forward else reversed(left):
            node = nodes[place]
            before = made_by.get(node.input_ids[0]) if node.input_ids else None
            after = used_by.get(node.output_ids[0]) if node.output_ids else None
            dequantizes = node.kind == "Convert" and node.inputs[0].dtype.startswith("q")
            begins = dequantizes or node.kind == "StaticTranspose"
            for neighbour in (after, before) if begins else (before, after):
                if place not in event_of and neighbour is not None and neighbour in event_of:
                    event_of[place] = event_of[neighbour]
    return {place: event_of[place] for place in left if place in event_of}
