"""Events laid along the nodes they come from."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graph

from model_profiling.program.delegates.xnnpack import alignment
from model_profiling.program.delegates.xnnpack.alignment import align, ran_in
from model_profiling.program.delegates.xnnpack.operators import describe
from model_profiling.program.records import Tensor

FC, CONV = "Fully Connected (NC, F32) GEMM", "Convolution (NHWC, QC8) IGEMM"
BMM, UNARY = "Batch Matrix Multiply (NC, F32)", "Invalid Unary Op"
ALIGNED = {
    "one event per node": (
        "StaticTranspose Conv2d DepthwiseConv2d Conv2d",
        ["Transpose (ND, X32)", "Convolution (NHWC, PF32) IGEMM", "Convolution (NHWC, F32) DWConv", FC],
        ((0,), (1,), (2,), (3,)),
    ),
    "one of two clamps has an event": (
        "Add Clamp Clamp Div", ["Add (ND)", "Clamp (NC)", "Divide (ND)"], ((0,), (1, 2), (3,)),
    ),
    "clamps are fused into what they limit": (
        "Add Clamp Clamp Div", ["Add (ND)", "Divide (ND)"], ((0, 1, 2), (3,)),
    ),
    "a lookup table stands for the conversions around it": (
        "Conv2d Convert> Hardswish >Convert Conv2d", [CONV, UNARY, CONV], ((0,), (2, 1, 3), (4,)),
    ),
    "a reshape that became nothing goes with what feeds it": (
        "GlobalAvgPooling2d StaticReshape FullyConnected", ["Mean (ND) Reduce2", FC], ((0, 1), (2,)),
    ),
    "a transpose that became nothing goes with what reads it": (
        "StaticReshape StaticTranspose BatchMatrixMultiply", ["Static Reshape (NC)", BMM], ((0,), (2, 1)),
    ),
    "something multiplied by itself is squared": (
        "Clamp Multiply Square", ["Clamp (NC)", "Square (NC)", "Square (NC)"], ((0,), (1,), (2,)),
    ),
    "packing belongs to the operator it packs for": (
        "Clamp FullyConnected", ["Clamp (NC)", "Pack LH (X32)", FC], ((0,), (1,), (1,)),
    ),
    "one node may give several events": (
        "Concatenate3 Softmax", [*["Copy (NC, X32)"] * 3, "Softmax (NC, F32)"], ((0,), (0,), (0,), (1,)),
    ),
    "an event of no known kind disturbs nothing": (
        "Conv2d Conv2d", [FC, "Teleport (ND)", FC], ((0,), (), (1,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIGNED)
def test_events_find_their_nodes(case: str) -> None:
    kinds, events, found = ALIGNED[case]
    numbered = [f"{event} #{number}" for number, event in enumerate(events, 1)]
    assert align(graph(*kinds.split()), numbered) == found
    assert [describe(event).preparation for event in events] == [event.startswith("Pack") for event in events]


def test_a_clamp_that_ends_a_node_belongs_to_it_wherever_it_shows() -> None:
    nodes = graph("Conv2d+", "Conv2d", "Add+", "StaticReshape", "FullyConnected")
    conv, add, clamp = "Convolution (NHWC, F32) IGEMM #1", "Add (ND) #1", "Clamp (NC) #1"
    linear = "Fully Connected (NC, F32) GEMM #1"
    assert align(nodes, [conv, conv, add, clamp, linear]) == ((0,), (1,), (2, 3), (2,), (4,))
    assert align(nodes, [conv, clamp, conv, add, clamp, linear]) == ((0,), (0,), (1,), (2, 3), (2,), (4,))
    assert align(nodes, [conv, conv, clamp, add, linear]) == ((0,), (1,), (), (2, 3), (4,))
    own = graph("Add+", "Clamp", "Conv2d")
    assert align(own, [add, clamp, conv]) == ((0,), (1,), (2,)), "a node of its own comes first"
    assert describe(clamp, nodes[0]).kind == "activation"
    assert describe(clamp, nodes[0]).ends_node and not describe(clamp, own[1]).ends_node


def test_conversions_that_no_node_asks_for_belong_to_what_they_convert_for() -> None:
    nodes = graph("StaticTranspose", "Conv2d", "Add", dtype="fp16")
    events = [
        "Transpose (ND, X16) #1", "Convert (NC) #1", "Convolution (NHWC, F32) IGEMM #1", "Add (ND) #1",
        "Convert (NC) #2",
    ]  # fmt: skip
    found = align(nodes, events)
    assert found == ((0,), (1,), (1,), (2,), (2,))
    mains = [nodes[members[0]] for members in found]
    assert ran_in(events, mains) == ("fp16", "fp32", "fp32", "fp32", "fp32")
    prepares = [describe(*each).preparation for each in zip(events, mains, strict=True)]
    assert prepares == ["Convert" in event for event in events]
    as_written = [event for event in events if "Convert" not in event]
    kept = [each for event, each in zip(events, mains, strict=True) if event in as_written]
    assert set(ran_in(as_written, kept)) == {"fp16"}, "nothing was converted: these are of another program"
    assert align(graph("Conv2d"), events[1:3]) == ((), (0,)), "fp32 has nothing to be converted from"


def test_parts_that_share_no_value_may_change_places() -> None:
    kinds = ("FullyConnected", "StaticReshape", "BatchMatrixMultiply", "Softmax")
    linear, *attention = (
        replace(node, input_ids=(first,), output_ids=(first + 1,))
        for first, node in zip((0, 11, 12, 13), graph(*kinds), strict=True)
    )
    nodes = [replace(linear, inputs=(Tensor((1,), "fp16"),)), *attention]
    events = [
        "Static Reshape (NC) #1", "Batch Matrix Multiply (NC, F32) GEMM #1", "Softmax (NC, F32) #1",
        "Convert (NC) #1", "Fully Connected (NC, F32) GEMM #1", "Convert (NC) #2",
    ]  # fmt: skip
    assert align(nodes, events) == ((1,), (2,), (3,), (0,), (0,), (0,))


_EVENTS_OF = {
    "Conv2d": "Convolution (NHWC, F32) IGEMM",
    "FullyConnected": "Fully Connected (NC, F32) GEMM",
    "Add": "Add (ND)",
    "StaticTranspose": "Transpose (ND, X32)",
    "Softmax": "Softmax (NC, F32)",
    "Hardswish": "HardSwish (NC)",
}


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*_EVENTS_OF, "Add+"]), min_size=1, max_size=40), st.data())
def test_what_fits_keeps_its_node_whatever_else_was_logged(kinds: list[str], data: st.DataObject) -> None:
    events = []
    for index, kind in enumerate(kinds):
        events.append((index, _EVENTS_OF[kind.strip("+")]))
        if kind.endswith("+") and data.draw(st.booleans()):
            events.append((index, "Clamp (NC)"))
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(events)))
        events.insert(at, (-1, data.draw(st.sampled_from(["Teleport (ND)", "Max Pooling (NHWC, F32)"]))))
    found = align(graph(*kinds), [name for _, name in events])
    assert found == tuple(() if index < 0 else (index,) for index, _ in events)


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*_EVENTS_OF, "Add+"]), min_size=1, max_size=30), st.data())
def test_events_that_were_lost_or_moved_cost_no_more_than_themselves(kinds, data):
    events = [_EVENTS_OF[kind.strip("+")] for kind in kinds]
    if data.draw(st.booleans()):
        del events[data.draw(st.integers(0, len(events) - 1))]
        allowed = 0
    else:
        moved = events.pop(data.draw(st.integers(0, len(events) - 1)))
        events.insert(data.draw(st.integers(0, len(events))), moved)
        allowed = 1
    found = align(graph(*kinds), events)
    assert sum(not members for members in found) <= allowed
    matched = [(events[at], kinds[members[0]].strip("+")) for at, members in enumerate(found) if members]
    assert all(kind in _kinds(event) for event, kind in matched)


def _kinds(event: str) -> set[str]:
    named = {kind for kind, name in _EVENTS_OF.items() if name == event}
    return named | ({"Conv2d"} if event.startswith("Fully") else set())


@pytest.mark.parametrize(("nodes", "events"), [(0, 0), (0, 3), (3, 0)])
def test_either_side_may_be_empty(nodes: int, events: int) -> None:
    assert align(graph(*["Conv2d"] * nodes), ["Add (ND)"] * events) == ((),) * events


def test_two_strangers_are_compared_along_a_narrow_band(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = 0

    def counted(*state: object) -> object:
        nonlocal visited
        visited += 1
        return steps(*state)

    steps = alignment._steps
    monkeypatch.setattr(alignment, "_steps", counted)
    assert align(graph(*["Conv2d"] * 600), ["Add (ND)"] * 600) == ((),) * 600
    assert 600 <= visited <= 600 * (2 * alignment._SLACK + 1) < 600 * 600 / 4
