"""What a page lets a reader open: whole where it is small, and where it is not, thinned and said to be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_series import made_page, made_series

from model_profiling.analysis.series_views import LOWERING, THE_MODEL, UNKNOWN, module_tree
from model_profiling.analysis.sources import OperatorSource
from model_profiling.program import SourceRef
from model_profiling.report.document import Explorer
from model_profiling.report.explorer import explore_modules, explore_operators, explore_timeline
from model_profiling.report.explorer.operators import Texts, fit
from model_profiling.report.html.page import json_text


def test_modules_hold_their_operators_and_those_of_what_is_inside() -> None:
    series = made_series(25)
    tree = module_tree(series.operators)
    paths = {module.path: len(module.operators[0]) for module in tree.every()}
    assert paths[""] == paths["encoder"] == paths["encoder.layers"] == 25
    assert paths["encoder.layers.0"] == paths["encoder.layers.1.block"] == 10
    assert paths["encoder.layers.2.block.4"] == 1
    for module in tree.every():
        if module.children:
            assert sum(len(child.operators[0]) for child in module.children) == len(module.operators[0])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (OperatorSource(origin="lowering"), LOWERING),
        (OperatorSource(origin="model"), THE_MODEL),
        (OperatorSource(), UNKNOWN),
    ],
)
def test_what_no_module_holds_says_where_it_is_from(source: OperatorSource, name: str) -> None:
    operator = replace(made_series(1).operators[0], source=source)
    assert [child.name for child in module_tree([operator]).children] == [name]


def test_a_damaged_record_makes_no_endless_tree() -> None:
    place = SourceRef(module_path=".".join("a" * 5_000))
    operator = replace(made_series(1).operators[0], source=OperatorSource(place=place))
    assert len(list(module_tree([operator]).every())) < 100


@given(st.integers(1, 400), st.integers(5, 3_000))
def test_as_much_is_kept_as_fits(count: int, most: int) -> None:
    def make(limit: int) -> dict[str, object]:
        return {"rows": list(range(limit))}

    kept = fit(make, count, most)
    size = len(json_text(kept))
    assert size <= most or kept == make(1)
    assert kept == make(count) or size >= 0.9 * most or len(json_text(make(2))) > 0.9 * most


def test_a_text_stands_once_and_no_name_is_endless() -> None:
    texts = Texts()
    assert texts.numbers(["a", "b", "a"]) == [0, 1, 0]
    texts.number("x" * 10_000)
    assert len(texts.all[-1]) < 500


def test_a_small_run_is_whole() -> None:
    data = made_page(40)
    blocks = [*explore_operators(data, ()), *explore_modules(data), *explore_timeline(data)]
    explorers = [block for block in blocks if isinstance(block, Explorer)]
    assert [each.kind for each in explorers] == ["operators", "modules", "timeline"]
    for each in explorers:
        for view in each.data["views"]:  # type: ignore[attr-defined]
            assert view["note"] == ""
    operators = explorers[0].data
    assert len(operators["views"][0]["rows"]) == 40  # type: ignore[index]
    assert [len(side) for side in operators["operators"]] == [40, 40]  # type: ignore[attr-defined]
