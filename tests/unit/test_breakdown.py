"""Times that add up: the typical runs of a series, and the figures a page shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import as_read
from said import says
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.categories import Category
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.summary import DumpAnalysis, analyse_dump
from model_profiling.core.formatting import milliseconds
from model_profiling.etdump import read_etdump
from model_profiling.report.breakdown import break_down, pair_table, series_table
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Table, plain
from model_profiling.report.operator_sections import SHOWN, operators
from model_profiling.run import Run, Series, Times
from model_profiling.run import run as opened

NAMES = (
    "Convolution (NHWC, F16) IGEMM #1",
    "Convolution (NHWC, F16) IGEMM #2",
    "Fully Connected (NC, F16) GEMM #1",
    "Transpose (ND, X16) #1",
    "Sigmoid (NC) #1",
)
Spent = Sequence[int]
"""Nanoseconds of each operator, then around them in the call, then around the call."""


def dump_of(runs: Sequence[Spent], names: Sequence[str] = NAMES, round: int = 0) -> DumpAnalysis:
    blocks = []
    for times in runs:
        clock, events = 0, []
        for name, spent in zip(names, times, strict=False):
            events.append(ProfileEvent(None, 0, 0, -1, name, None, clock, clock + spent))
            clock += spent
        call = clock + times[-2]
        events.append(ProfileEvent("DELEGATE_CALL", 0, 0, -1, None, None, 0, call))
        events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, call + times[-1]))
        blocks.append(Block("Execute", -1, (), tuple(events)))
    content = Dump(tuple(blocks), True, False).to_bytes()
    made = opened.Dump(Path("made.etdump"), Series("made", 1), Times.HARDWARE, round)
    return analyse_dump(read_etdump(content), made)


def test_slow_runs_have_no_say_and_neither_have_the_fastest() -> None:
    lengths = [9_000_000, 1_000, 4_000, 5_000, 6_000, 5_000, 4_000, 90_000]
    series = series_of(
        [dump_of([(length, 0, 0) for length in part], NAMES[:1]) for part in (lengths[:4], lengths[4:])]
    )
    assert series.typical.tolist() == [3, 4, 5, 6], "by end-to-end time, of both rounds"
    assert series.e2e_ms == pytest.approx(0.005)
    assert series.operators[0].typical_ms == pytest.approx(0.005)
    says(series.taken_from, "mean of 4 runs", "8", "2 rounds")
    says(series_of([dump_of([(5, 0, 0)] * 3, NAMES[:1])]).taken_from, "mean of 3 runs")


runs = st.lists(
    st.tuples(*([st.integers(0, 9) | st.integers(0, 10**7)] * len(NAMES)), st.integers(0, 10**6), st.just(7)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=40)
@given(st.lists(runs, min_size=1, max_size=3))
def test_parts_and_operators_add_up_exactly(rounds: list[list[tuple[int, ...]]]) -> None:
    series = series_of([dump_of(part, round=number) for number, part in enumerate(rounds)])
    spent = [series.spent(part) for part in series.parts.values()]
    assert sum(found.ms for found in spent) == pytest.approx(series.e2e_ms, rel=1e-12)
    assert sum(found.share for found in spent) == pytest.approx(1)
    for category, part in series.breakdown.categories.items():
        members = [operator for operator in series.operators if operator.category is category]
        assert series.spent_by(members).ms == pytest.approx(series.spent(part).ms, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.lists(runs, min_size=1, max_size=2))
def test_what_a_page_shows_adds_up_to_the_last_digit(rounds: list[list[tuple[int, ...]]]) -> None:
    series = series_of([dump_of(part, round=number) for number, part in enumerate(rounds)])
    *parts, whole = column(series_table(series), 1)
    assert sum(parts) == whole == Decimal(milliseconds(series.e2e_ms))
    *shares, all_of_it = column(series_table(series), 2)
    assert sum(shares) == all_of_it == 100
    shown = break_down(series)
    for category in Category:
        cells = [shown.of([operator]).cells for operator in series.operators if operator.category is category]
        wanted = shown.parts[category.value].cells
        assert sum(map(number, (ms for ms, _ in cells))) == number(wanted[0])
        assert sum(map(number, (share for _, share in cells))) == number(wanted[1])
        assert all(number(cell) >= 0 for pair in cells for cell in pair)


def number(cell: str) -> Decimal:
    return Decimal(cell.rstrip("%")) if cell != "-" else Decimal(0)


def column(table: Table, place: int) -> list[Decimal]:
    return [number(plain(row[place])) for row in table.rows]


def test_both_sides_of_a_pair_add_up_and_the_headline_is_their_quotient() -> None:
    before = series_of([dump_of([(3_333, 1_111, 777, 555, 10_001, 99, 7)] * 3)])
    after = series_of([dump_of([(1_234, 1_111, 432, 655, 10_001, 99, 7)] * 3)])
    pairing = pair_series(before, after)
    table = pair_table(pairing, ("before", "after"))
    for place in (1, 2, 3, 4):
        *parts, whole = column(table, place)
        assert sum(parts) == whole
    assert pairing.traced_ratio == before.e2e_ms / after.e2e_ms
    assert plain(table.rows[-1][6]) == f"{pairing.traced_ratio:.2f}x"


def page_of(*series: SeriesAnalysis) -> ReportData:
    """A report that holds these series alone."""
    run = Run(Path("d"), dumps=tuple(found.first.dump for found in series))
    return report_data(run, RunAnalysis(run, series, (), (), (), ()))


def test_the_operator_table_adds_up_with_the_rest_by_category() -> None:
    names = [f"{name[:-1]}{number}" for number in range(5) for name in NAMES]
    series = series_of([dump_of([(*range(1_000, 1_000 + 37 * len(names), 37), 500, 70)], names)])
    *_, table = as_read(operators(page_of(series)))
    assert isinstance(table, Table) and len(table.rows) > SHOWN
    shown = break_down(series)
    for category in Category:
        rows = [row for row in table.rows if row[1] == category.value]
        for place, wanted in zip((2, 3), shown.parts[category.value].cells, strict=True):
            assert sum(number(plain(row[place])) for row in rows) == number(wanted)


def test_operators_at_one_position_of_different_runs_are_told_apart() -> None:
    """A model that branches calls one operator in some runs and another, in the same place, in others."""
    runs = [dump_of([(1_000, 0, 0)], NAMES[:1]), dump_of([(3_000, 0, 0)], NAMES[3:4], round=1)]
    series = series_of(runs)
    first, second = series.operators
    assert first.identity == second.identity
    shown = break_down(series)
    assert [shown.of([operator]).cells[0] for operator in (first, second)] == ["0.00050", "0.00150"]
    assert shown.of([first, second]).cells[0] == shown.end_to_end.cells[0] == "0.00200"


def test_many_small_operators_are_shown_with_what_they_take_together() -> None:
    """Each takes 0.28% and alone would be 0.3%: eighteen of them are 5.0%, not 5.4%."""
    small = [f"Sigmoid (NC) #{number}" for number in range(1, 19)]
    large = [f"Clamp (NC) #{number}" for number in range(1, 41)]
    times = (*[2_780] * 18, *[(1_000_000 - 18 * 2_780) // 40] * 40, 0, 0)
    series = series_of([dump_of([times], [*small, *large])])
    shown = break_down(series)
    for kind in (series.operators[:18], series.operators[18:]):
        exact, found = series.spent_by(kind), shown.of(kind)
        assert abs(found.percent - 100 * exact.share) < 0.1
        assert abs(found.ms - exact.ms) < 10**-found.decimals
    assert shown.of(series.operators[:18]).cells[1] == "5.0%"


def test_parts_of_the_operators_are_rounded_from_exact_times() -> None:
    """Every layer takes the same, whichever of its operators were rounded up elsewhere on the page."""
    series = series_of([dump_of([(*[2_780] * 360, 0, 0)], [f"Sigmoid (NC) #{each}" for each in range(360)])])
    shown = break_down(series)
    layers = [series.operators[start : start + 30] for start in range(0, 360, 30)]
    found = shown.within(shown.all_operators, series.operators, layers)
    assert {layer.cells[1] for layer in found} <= {"8.3%", "8.4%"}
    assert sum(layer.percent for layer in found) == pytest.approx(100)
    assert len(shown.within(shown.of(layers[0]), layers[0], [layers[0][:10]])) == 1
