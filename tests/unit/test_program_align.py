"""Events laid along the nodes they come from."""

from __future__ import annotations

import pytest
from strategies import graph

from model_profiling.program.delegates.xnnpack import alignment
from model_profiling.program.delegates.xnnpack.alignment import align
from model_profiling.program.delegates.xnnpack.operators import describe


def test_one_event_per_node() -> None:
    nodes = graph("StaticTranspose", "Conv2d", "DepthwiseConv2d", "Conv2d")
    events = [
        "Transpose (ND, X32) #1",
        "Convolution (NHWC, PF32) IGEMM #1",
        "Convolution (NHWC, F32) DWConv #1",
        "Fully Connected (NC, F32) GEMM #1",
    ]
    assert align(nodes, events) == ((0,), (1,), (2,), (3,))


def test_clamps_are_fused_into_what_they_limit() -> None:
    nodes = graph("Add", "Clamp", "Clamp", "Div")
    assert align(nodes, ["Add (ND) #1", "Clamp (NC) #1", "Divide (ND) #1"]) == ((0,), (1, 2), (3,))
    assert align(nodes, ["Add (ND) #1", "Divide (ND) #1"]) == ((0, 1, 2), (3,))


def test_a_lookup_table_stands_for_the_conversions_around_it() -> None:
    nodes = graph("Conv2d", "Convert>", "Hardswish", ">Convert", "Conv2d")
    events = ["Convolution (NHWC, QC8) IGEMM #1", "Invalid Unary Op #1", "Convolution (NHWC, QC8) IGEMM #2"]
    assert align(nodes, events) == ((0,), (2, 1, 3), (4,))


def test_a_reshape_that_became_nothing_goes_with_what_feeds_it() -> None:
    nodes = graph("GlobalAvgPooling2d", "StaticReshape", "FullyConnected")
    assert align(nodes, ["Mean (ND) Reduce2 #1", "Fully Connected (NC, F32) GEMM #1"]) == ((0, 1), (2,))


def test_a_transpose_that_became_nothing_goes_with_what_reads_it() -> None:
    nodes = graph("StaticReshape", "StaticTranspose", "BatchMatrixMultiply")
    events = ["Static Reshape (NC) #1", "Batch Matrix Multiply (NC, F32) GEMM #1"]
    assert align(nodes, events) == ((0,), (2, 1))


def test_something_multiplied_by_itself_is_squared() -> None:
    assert align(
        graph("Clamp", "Multiply", "Square"), ["Clamp (NC) #1", "Square (NC) #1", "Square (NC) #2"]
    ) == (
        (0,),
        (1,),
        (2,),
    )


def test_packing_belongs_to_the_operator_it_packs_for() -> None:
    nodes = graph("Clamp", "FullyConnected")
    events = ["Clamp (NC) #1", "Pack LH (X32) #1", "Fully Connected (NC, PF32) GEMM #1"]
    assert align(nodes, events) == ((0,), (1,), (1,))
    assert [describe(event).preparation for event in events] == [False, True, False]


def test_one_node_may_give_several_events() -> None:
    nodes = graph("Concatenate3", "Softmax")
    events = ["Copy (NC, X32) #1", "Copy (NC, X32) #2", "Copy (NC, X32) #3", "Softmax (NC, F32) #1"]
    assert align(nodes, events) == ((0,), (0,), (0,), (1,))


def test_an_event_of_no_known_kind_is_left_alone_and_disturbs_nothing() -> None:
    nodes = graph("Conv2d", "Conv2d")
    events = ["Fully Connected (NC, F32) GEMM #1", "Teleport (ND) #1", "Fully Connected (NC, F32) GEMM #2"]
    assert align(nodes, events) == ((0,), (), (1,))


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
    assert align(graph(*["Conv2d"] * 2000), ["Add (ND)"] * 2000) == ((),) * 2000
    assert 2000 <= visited <= 2000 * (2 * alignment._SLACK + 1) < 2000 * 2000 / 10
