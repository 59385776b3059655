"""Costs of operators: the same work costs the same, inside a delegate or outside."""

from __future__ import annotations

import pytest

from model_profiling.program import Tensor, Window
from model_profiling.program.category import Category
from model_profiling.program.delegates.portable import operators as operator_cost
from model_profiling.program.delegates.portable.operators import _KERNELS, describe
from model_profiling.program.delegates.xnnpack import alignment, graph, operators

IMAGE = Tensor((1, 8, 64, 64), "fp32")
SMALLER = Tensor((1, 8, 32, 32), "fp32")


def operator_flops(name: str, given: Tensor, made: Tensor, taps: int = 0) -> int:
    return operator_cost.operator_flops(name, (given,), (made,), transposed=False, taps=taps)


def test_a_pooling_costs_the_same_inside_and_outside_a_delegate() -> None:
    window = Window(kernel=(3, 2), stride=(2, 2), dilation=(1, 1), padding=(0, 0, 0, 0))
    for kind, name in [
        ("AvgPooling2d", "aten::avg_pool2d.out"),
        ("MaxPooling2d", "aten::max_pool2d_with_indices.out"),
    ]:
        delegated = graph.node_flops(kind, (IMAGE,), (SMALLER,), window)
        assert operator_flops(name, IMAGE, SMALLER, taps=6) == delegated == 8 * 32 * 32 * 6
    one = Tensor((1, 8, 1, 1), "fp32")
    delegated = graph.node_flops("GlobalAvgPooling2d", (IMAGE,), (one,), None)
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


@pytest.mark.parametrize("name", ["executorch_prim::et_view.default", "aten::view_copy.out", "aten::cat.out"])
def test_an_operator_that_moves_data_counts_no_operations(name: str) -> None:
    assert describe(name).category is Category.DATA_MOVEMENT
    assert operator_flops(name, IMAGE, IMAGE) == 0


@pytest.mark.parametrize("kind", ["Convert", "Copy", "StaticTranspose", "StaticReshape", "StaticSlice"])
def test_a_node_that_moves_data_counts_no_operations(kind: str) -> None:
    assert graph.node_flops(kind, (IMAGE,), (Tensor(IMAGE.shape, "qint8"),), None) == 0


def test_a_product_counts_its_factors_and_not_what_is_added_to_it() -> None:
    added, left, right = Tensor((2, 5, 7), "fp32"), Tensor((2, 5, 3), "fp32"), Tensor((2, 3, 7), "fp32")
    found = operator_cost.operator_flops(
        "aten::baddbmm.out", (added, left, right), (added,), transposed=False, taps=0
    )
    assert found == 2 * (2 * 5 * 7) * 3


def test_the_category_alone_decides_what_counts_no_operations() -> None:
    def flops(name: str) -> int:
        inputs = (IMAGE, IMAGE, IMAGE)
        return operator_cost.operator_flops(f"aten::{name}.out", inputs, (IMAGE,), transposed=False, taps=4)

    free = {name for name in _KERNELS if flops(name) == 0}
    assert free == {name for name, (category, _) in _KERNELS.items() if category is Category.DATA_MOVEMENT}


def test_another_library_s_pooling_may_take_its_arguments_in_another_order() -> None:
    assert operator_cost.slides_window("aten::avg_pool2d.out")
    assert not operator_cost.slides_window("theirs::avg_pool2d.out")
    assert not operator_cost.slides_window("aten::max_pool2d_with_indices_backward.grad_input")


def test_no_table_names_a_kind_of_node_that_no_program_has() -> None:
    kinds = {kind for kind, _ in graph._KINDS}
    of_events = frozenset[str]().union(*alignment._KINDS_OF_EVENT.values())
    tables = (operators._NODE_KINDS, operators._COMPUTING, graph._MOVES, graph._RULES, of_events)
    for table in (*tables, alignment._VANISHING_COST):
        assert sorted(set(table) - kinds) == []
