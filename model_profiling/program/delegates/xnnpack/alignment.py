"""Finds the nodes of an XNNPACK graph that each event of a delegate call stands for.

XNNPACK's events carry no handle. They come in the order of the graph's nodes, but XNNPACK fuses some nodes
into others (clamps, conversions around a lookup table), drops some, splits some (an Add that ends in a
clamp), and adds its own steps: packing, and conversions when it runs a half-precision graph in fp32. Events
and nodes are therefore aligned like two versions of a text, at the least cost; pairing an event with a node
it can come from costs nothing. An event that fits nowhere is left out and shifts no other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

from model_profiling.program.delegates.xnnpack.operators import describe
from model_profiling.program.records import GraphNode

_UNARY = frozenset(
    {
        "Abs", "Ceiling", "Clamp", "Convert", "Cos", "ELU", "Exp", "Floor", "Gelu", "Hardswish", "LeakyReLU",
        "Log", "Negate", "ReciprocalSquareRoot", "Sigmoid", "Sin", "Square", "SquareRoot", "Tanh",
    }
)  # fmt: skip
_CONCATENATIONS = frozenset({"Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"})
# Each of these is one event: a second one belongs to another node or to none.
UNDIVIDED = frozenset(
    {"Conv2d", "DepthwiseConv2d", "ConvTranspose2d", "FullyConnected", "BatchMatrixMultiply"}
)

# Kinds of node that an event can come from, by event name, unless that is just the kind of the same name.
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
    # XNNPACK detects when something is multiplied by itself.
    "Square": frozenset({"Square", "Multiply"}),
    "Sum": frozenset({"GlobalAvgPooling2d"}),
    "TanH": frozenset({"Tanh"}),
    "Transpose": frozenset({"StaticTranspose"}),
    "Unary Elementwise": _UNARY,
}

_VANISHING_COST = dict.fromkeys(_UNARY, 3)
_VANISHING_COST |= {"Clamp": 1, "Convert": 1, "Copy": 1, "StaticReshape": 1, "StaticTranspose": 2}
_OTHER_VANISHING_COST = 8
# A second event for one node; common only for nodes that run input by input.
_REPEAT_COST = 3
_STRANGE_EVENT_COST = 20
# A conversion without a node, in a graph that XNNPACK may run in another type than written.
_ADDED_CONVERSION_COST = 4
# Parts of a graph whose orders are tried: 4 parts have 24 orders.
_PARTS_TRIED = 4
# How far the two sequences may drift apart beyond their difference in length.
_SLACK = 64


def align(nodes: Sequence[GraphNode], events: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """For each event, the indexes (into `nodes`) of the nodes it stands for, the main one first. Fused nodes
    share an event; a step that XNNPACK added gets the nodes of the operator it serves."""
    halved = any(node.dtype == "fp16" for node in nodes)
    said = [_Said.of(event, halved=halved) for event in events]
    main = _laid(nodes, said)
    members: list[list[int]] = [[] if index is None else [index] for index in main]
    for node, event in _fused(nodes, main).items():
        members[event].append(node)
    for position, served in _serving(said, main):
        members[position] = members[served]
    return tuple(tuple(found) for found in members)


@dataclass(frozen=True, slots=True)
class _Said:
    kinds: frozenset[str]
    clamps: bool
    added: bool
    """Whether it can be a step that XNNPACK added for another operator."""
    cost_alone: int
    """The cost of leaving it without a node."""

    @classmethod
    def of(cls, event: str, *, halved: bool) -> _Said:
        name = event.partition(" (")[0].partition(" #")[0]
        kinds = _KINDS_OF_EVENT.get(name, frozenset({name.replace(" ", "")}))
        if describe(event).preparation:
            return cls(kinds, clamps=False, added=True, cost_alone=0)
        converts = halved and name == "Convert"
        alone = _ADDED_CONVERSION_COST if converts else _STRANGE_EVENT_COST
        return cls(kinds, name == "Clamp", converts, alone)


def _serving(said: Sequence[_Said], main: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Each step that XNNPACK added, with the event it serves: the next one or, at the end, the last."""
    served = max((place for place, node in enumerate(main) if node is not None), default=None)
    for position in range(len(said) - 1, -1, -1):
        if main[position] is not None or not said[position].added:
            served = position
        elif served is not None:
            yield position, served


def _laid(nodes: Sequence[GraphNode], said: Sequence[_Said]) -> list[int | None]:
    """The main node of each event. Parts of a graph that share no value may have changed places: if events
    are left over, other orders are tried."""

    def left(main: Sequence[int | None]) -> int:
        return sum(node is None and not one.added for node, one in zip(main, said, strict=True))

    best = _cheapest(nodes, said)
    for order in _other_orders(nodes) if left(best) else ():
        found = _cheapest([nodes[place] for place in order], said)
        if left(found) < left(best):
            best = [None if node is None else order[node] for node in found]
    return best


def _other_orders(nodes: Sequence[GraphNode]) -> Iterator[list[int]]:
    """The parts of a graph that share no value, in every other order; none if there are too many."""
    parts: list[tuple[set[int], list[int]]] = []
    for place, node in enumerate(nodes):
        values, members = {*node.input_ids, *node.output_ids}, [place]
        for part in [part for part in parts if part[0] & values]:
            parts.remove(part)
            values, members = values | part[0], [*part[1], *members]
        parts.append((values, sorted(members)))
    if len(parts) <= _PARTS_TRIED:
        parts.sort(key=lambda part: part[1][0])
        for order in islice(permutations(parts), 1, None):
            yield [place for _, members in order for place in members]


_State = tuple[int, int, bool]
"""Events done, nodes done, and whether the last of these nodes has an event: only then can it get another."""


def _cheapest(nodes: Sequence[GraphNode], said: Sequence[_Said]) -> list[int | None]:
    """The main node of each event on the cheapest path from the start to the end of both sequences."""
    last_event, last_node = len(said), len(nodes)
    most_ahead = max(last_node - last_event, 0) + _SLACK
    most_behind = max(last_event - last_node, 0) + _SLACK
    state: _State = (0, 0, False)
    # Among equally cheap states, the most advanced goes first.
    queue: list[tuple[int, int, _State]] = [(0, 0, state)]
    best: dict[_State, int] = {state: 0}
    came_from: dict[_State, tuple[_State, int | None]] = {}
    while queue:
        cost, _, state = heapq.heappop(queue)
        if state[:2] == (last_event, last_node):
            break
        if cost > best[state]:
            continue
        for following, step, paired in _steps(nodes, said, state):
            event, node, _ = following
            if not -most_behind <= node - event <= most_ahead:
                continue
            if cost + step < best.get(following, 1 << 60):
                best[following] = cost + step
                came_from[following] = (state, paired)
                heapq.heappush(queue, (cost + step, -(event + node), following))
    main: list[int | None] = [None] * last_event
    while state in came_from:
        before, paired = came_from[state]
        if state[0] > before[0]:
            main[before[0]] = paired
        state = before
    return main


def _steps(
    nodes: Sequence[GraphNode], said: Sequence[_Said], state: _State
) -> Iterator[tuple[_State, int, int | None]]:
    """The possible next states, each with its cost and the node paired with the event."""
    event, node, has_event = state
    if event < len(said):
        kinds = said[event].kinds
        if node < len(nodes) and nodes[node].kind in kinds:
            yield (event + 1, node + 1, True), 0, node
        if has_event and said[event].clamps and nodes[node - 1].clamp is not None:
            yield (event + 1, node, True), 0, node - 1
        elif has_event and nodes[node - 1].kind in kinds and nodes[node - 1].kind not in UNDIVIDED:
            repeats = nodes[node - 1].kind in _CONCATENATIONS
            yield (event + 1, node, True), 0 if repeats else _REPEAT_COST, node - 1
        yield (event + 1, node, has_event), said[event].cost_alone, None
    if node < len(nodes):
        kind = nodes[node].kind
        yield (event, node + 1, False), _VANISHING_COST.get(kind, _OTHER_VANISHING_COST), None


def _fused(nodes: Sequence[GraphNode], main: Sequence[int | None]) -> dict[int, int]:
    """For each node without its own event, the event of the node it was fused into, if any.

    Clamps and conversions to a quantized type end the operator before them; conversions from a quantized type
    and transposes begin the one after them; other data movement joins either.
    """
    event_of = {node: event for event, node in reversed(list(enumerate(main))) if node is not None}
    made_by = {number: place for place, node in enumerate(nodes) for number in node.output_ids}
    used_by = {number: place for place, node in reversed(list(enumerate(nodes))) for number in node.input_ids}
    left = [place for place, node in enumerate(nodes) if place not in event_of and node.kind not in UNDIVIDED]
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


# The type in which XNNPACK ran each operator. If the CPU has no half-precision arithmetic, or it is switched
# off, XNNPACK runs an fp16 graph in fp32 and converts its inputs and outputs.

_WIDE = frozenset({"F32", "PF32"})
_STILL_HALF = "X16"
"""Operators that only move values may do so before the conversion."""


def ran_in(events: Sequence[str], mains: Sequence[GraphNode | None]) -> tuple[str, ...]:
    labels = [describe(event).family.split(", ")[0] for event in events]
    widened = any(event.startswith("Convert") for event in events) and any(
        node is not None and node.dtype == "fp16" and label in _WIDE
        for label, node in zip(labels, mains, strict=True)
    )
    return tuple(
        "fp32"
        if widened and node is not None and node.dtype == "fp16" and label != _STILL_HALF
        else node.dtype
        if node
        else ""
        for label, node in zip(labels, mains, strict=True)
    )
