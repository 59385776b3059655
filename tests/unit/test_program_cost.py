"""Costs of operators: the same work costs the same, inside a delegate or outside."""

from __future__ import annotations

import pytest

from model_profiling.analysis import categories
from model_profiling.program import Tensor, Window, cost, xnnpack
from model_profiling.program.align import _KINDS_OF_EVENT, _VANISHING_COST

IMAGE = Tensor((1, 8, 64, 64), "fp32")
SMALLER = Tensor((1, 8, 32, 32), "fp32")


def operator_flops(name: str, given: Tensor, made: Tensor, taps: int = 0) -> int:
    return cost.operator_cost(name, (given,), (made,), transposed=False, taps=taps)[0]


def test_a_pooling_costs_the_same_inside_and_outside_a_delegate() -> None:
    window = Window(kernel=(3, 2), stride=(2, 2), dilation=(1, 1), padding=(0, 0, 0, 0))
    for kind, name in [
        ("AvgPooling2d", "aten::avg_pool2d.out"),
        ("MaxPooling2d", "aten::max_pool2d_with_indices.out"),
    ]:
        delegated = cost.node_flops(kind, (IMAGE,), (SMALLER,), window)
        assert operator_flops(name, IMAGE, SMALLER, taps=6) == delegated == 8 * 32 * 32 * 6
    one = Tensor((1, 8, 1, 1), "fp32")
    delegated = cost.node_flops("GlobalAvgPooling2d", (IMAGE,), (one,), None)
    assert operator_flops("aten::_adaptive_avg_pool2d.out", IMAGE, one) == delegated == 32_768


@pytest.mark.parametrize(
    "name",
    [
        "_adaptive_avg_pool2d.out", "native_layer_norm.out", "native_group_norm.out", "cumsum.out",
        "topk.values", "max.dim_max", "mean.out", "var_mean.correction_out",
    ],
)  # fmt: skip
def test_work_that_follows_the_input_is_not_counted_by_the_output(name: str) -> None:
    assert operator_flops(f"aten::{name}", IMAGE, Tensor((1, 8, 4, 4), "fp32")) == 32_768


def test_another_library_s_pooling_may_take_its_arguments_in_another_order() -> None:
    assert cost.slides_window("aten::avg_pool2d.out")
    assert not cost.slides_window("theirs::avg_pool2d.out")
    assert not cost.slides_window("aten::max_pool2d_with_indices_backward.grad_input")


def test_no_table_names_a_kind_of_node_that_no_program_has() -> None:
    kinds = {kind for kind, _ in xnnpack._KINDS}
    of_events = frozenset[str]().union(*_KINDS_OF_EVENT.values())
    for table in (categories._GRAPH, cost._MOVES, cost._NODE_RULES, of_events, _VANISHING_COST):
        assert sorted(set(table) - kinds) == []
