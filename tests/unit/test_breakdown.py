"""Times that add up on a page, and a headline that is true of them, not of what the tracer takes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_series import analysed, one_call
from pages import as_read
from said import says, says_together

from model_profiling.analysis.operators import DumpAnalysis
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis, series_of
from model_profiling.core.formatting import milliseconds
from model_profiling.program.category import Category
from model_profiling.report.breakdown import (
    break_down,
    change_cells,
    explain_overheads,
    pair_table,
    series_table,
)
from model_profiling.report.data import ExperimentReport, report_data
from model_profiling.report.document import ShownTable, plain
from model_profiling.report.sections import operators
from model_profiling.report.verdict import answers
from model_profiling.runs import Manifest, Metrics, Result, Run, Times
from model_profiling.runs.manifest import TargetFacts
from model_profiling.runs.records import Latency, TracerCost
from model_profiling.statistics.measure import summarize
from model_profiling.statistics.speedup import Speedup, Verdict

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
    return analysed([one_call(zip(names, times, strict=False), *times[-2:]) for times in runs], round=round)


def test_slow_runs_have_no_say_and_neither_have_the_fastest() -> None:
    lengths = [9_000_000, 1_000, 4_000, 5_000, 6_000, 5_000, 4_000, 90_000]
    parts = (lengths[:4], lengths[4:])
    series = series_of([dump_of([(length, 0, 0) for length in part], NAMES[:1]) for part in parts])
    assert series.typical.tolist() == [3, 4, 5, 6], "by end-to-end time, of both rounds"
    assert series.e2e_ms == pytest.approx(0.005)
    assert series.operators[0].typical_ms == pytest.approx(0.005)
    says(series.taken_from, "mean of the middle 4 of 8 traced runs", "2 rounds")
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
@example([[(0, 0, 0, 0, 0, 1987, 7)]])
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


def column(table: ShownTable, place: int) -> list[Decimal]:
    return [number(plain(row[place])) for row in table.rows]


def test_parts_of_a_pair_and_operators_add_up_with_the_rest() -> None:
    before = series_of([dump_of([(3_333, 1_111, 777, 555, 10_001, 99, 7)] * 3)])
    after = series_of([dump_of([(1_234, 1_111, 432, 655, 10_001, 99, 7)] * 3)])
    pairing = pair_series(before, after)
    table = pair_table(pairing, ("before", "after"))
    for place in (1, 2, 3, 4):
        *parts, whole = column(table, place)
        assert sum(parts) == whole
    assert pairing.traced_ratio == before.e2e_ms / after.e2e_ms
    assert plain(table.rows[-1][6]) == f"{pairing.traced_ratio:.2f}x"
    names = [f"{name[:-1]}{number}" for number in range(5) for name in NAMES]
    series = series_of([dump_of([(*range(1_000, 1_000 + 37 * len(names), 37), 500, 70)], names)])
    run = Run(Path("d"), dumps=(series.first.dump,))
    blocks = as_read(operators(report_data(run, RunAnalysis(run, (series,), (), (), (), ()))))
    (table,) = (block for block in blocks if isinstance(block, ShownTable) and block.headers[0] == "layer")
    assert len(table.rows) == 10 + 1
    shown = break_down(series)
    of_operators = [shown.parts[category.value].cells for category in series.breakdown.categories]
    for place, cells in zip((3, 4), zip(*of_operators, strict=True), strict=True):
        assert sum(number(plain(row[place])) for row in table.rows) == sum(map(number, cells))


def judged(verdict: Verdict, ratio: float) -> Speedup:
    return Speedup(verdict, "", ratio, 0.1, 9.0, None, 0.95, 6, None, None, "made")


shown_ms = st.decimals(0, 2, places=3, allow_nan=False).map(str)


@given(shown_ms, shown_ms, st.floats(0.2, 5), st.sampled_from(Verdict))
def test_a_change_never_contradicts_the_two_times_beside_it(before, after, ratio, verdict) -> None:
    said, times = change_cells(before, after, ratio, judged(verdict, ratio))
    if said.endswith("%"):
        assert said[0] == ("+" if float(after) > float(before) else "-") and before != after
        assert (float(times.rstrip("x")) <= 1) is (said[0] == "+") or times == "1.00x"
    else:
        assert said in ("about the same", "unclear", "under 0.001 ms")
    if before == after:
        assert said == ("under 0.001 ms" if verdict in (Verdict.FASTER, Verdict.SLOWER) else "about the same")


@pytest.mark.parametrize(
    ("times", "ratio", "verdict", "said"),
    [
        (("0.004", "0.003"), 0.99, Verdict.NO_CHANGE, ("about the same", "-")),
        (("0.025", "0.023"), 1.004, Verdict.NO_CHANGE, ("unclear", "-")),
        (("0.12", "0.12"), 1.03, None, ("about the same", "-")),
        (("0.12", "0.12"), 1.06, Verdict.FASTER, ("under 0.01 ms", "1.06x")),
        (("0.409", "0.148"), 2.8, Verdict.FASTER, ("-64.3%", "2.80x")),
        (("0.001", "0.000"), 1.0, Verdict.FASTER, ("about the same", "-")),
        (("-", "0.148"), None, None, ("-", "-")),
    ],
)
def test_what_stands_beside_two_times(times, ratio, verdict, said) -> None:
    assert change_cells(*times, ratio, verdict and judged(verdict, ratio)) == said


def test_operators_of_one_place_are_told_apart_and_small_ones_shown_together() -> None:
    """A model that branches calls one operator in some runs and another, in the same place, in others."""
    runs = [dump_of([(1_000, 0, 0)], NAMES[:1]), dump_of([(3_000, 0, 0)], NAMES[3:4], round=1)]
    series = series_of(runs)
    first, second = series.operators
    assert first.identity == second.identity
    shown = break_down(series)
    assert [shown.of([operator]).cells[0] for operator in (first, second)] == ["0.00050", "0.00150"]
    assert shown.of([first, second]).cells[0] == shown.end_to_end.cells[0] == "0.00200"
    # Each takes 0.28% and alone would be 0.3%: eighteen of them are 5.0%, not 5.4%.
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


CONV, SIGMOID, LINEAR = "Convolution (NHWC, F32) IGEMM", "Sigmoid (NC)", "Fully Connected (NC, F32) GEMM"


def made(operators, inside, outside, untraced_us=None):
    """One delegate call: its operators' microseconds, what it takes beside them, what is around it."""
    block = one_call([(name, 1000 * us) for name, us in operators.items()], 1000 * inside, 1000 * outside)
    latency = None
    if untraced_us is not None:
        cost = TracerCost(block.events[-1].end / 1e3 / untraced_us - 1)
        whole = summarize([untraced_us / 1e3])
        latency = Latency(experiment="made", threads=1, end_to_end_ms=whole, tracer_cost=cost)
    return series_of([analysed([block])], latency)


def where_time_goes(series: SeriesAnalysis) -> str:
    """The first answer of a report on a run of this series alone."""
    target = TargetFacts("host", "linux", Times.HARDWARE)
    manifest = Manifest(target=target, results=(Result(experiment="made", threads=1),))
    run = Run(Path("d"), manifest, metrics=Metrics(times=Times.HARDWARE))
    known = ExperimentReport(series.series, Times.HARDWARE, None, None, series.measured, series)
    return answers(replace(report_data(run, None), experiments=(known,))).where_time_goes


_US = st.integers(0, 300)


@example(operators={CONV: 0, SIGMOID: 3, LINEAR: 3}, inside=0, outside=1, untraced=0.5)
@settings(max_examples=60)
@given(
    st.fixed_dictionaries({CONV: _US, SIGMOID: _US, LINEAR: _US}),
    *(_US, st.integers(1, 300)),
    st.none() | st.floats(0.3, 1.1),
)
def test_most_is_said_of_more_than_half_and_of_the_largest_alone(operators, inside, outside, untraced):
    everything = whole = sum(operators.values()) + inside + outside
    series = made(operators, inside, outside, None if untraced is None else untraced * whole)
    said = where_time_goes(series)
    parts = {"Convolution": operators[CONV], "Elementwise": operators[SIGMOID], "GEMM": operators[LINEAR]}
    if series.distorted:
        tracer = round(series.tracing.ms * 1e3, 6)
        parts |= {"time outside operators": inside + outside - tracer}
        whole -= tracer
    else:
        parts |= {"Unattributed": inside, "Framework overhead": outside}
    found = re.search(rf"({'|'.join(parts)}) ([^(%]*)\(([\d.]+)%", said)
    assert found is not None, said
    name, words, share = found.groups()
    assert parts[name] >= max(parts.values()) - everything / 999
    assert float(share) == pytest.approx(100 * parts[name] / whole, abs=0.21 * everything / whole)
    assert ("most" in words) == (float(share) > 50)
    assert ("distorts" in said) == series.distorted
    if name in OVERHEADS:
        assert said.count(name) > 1, "an overhead that is the largest part is explained"


def test_bounds_are_of_the_time_without_the_tracer_and_never_count_what_it_takes() -> None:
    operators = {CONV: 100, SIGMOID: 20}
    traced = made(operators, 260, 20)
    assert traced.gain_pct(0.1) == pytest.approx(25)
    says(traced.bounds_are_of, "0.400 ms with")
    known = made(operators, 260, 20, untraced_us=150)
    assert known.distorted and known.tracing.ms == pytest.approx(0.25)
    assert known.gain_pct(0.1) == pytest.approx(66.67)
    assert known.gain_pct(0.0, 0.28) == pytest.approx(20), "30 us of overheads are not the tracer's"
    slow_moment = made({CONV: 950, SIGMOID: 20}, 20, 10, untraced_us=900)
    assert slow_moment.gain_pct(0.95) == pytest.approx(100 * 950 / 970, abs=0.01), "never 100% of anything"
    says(known.bounds_are_of, "0.150 ms without")


def test_overheads_above_a_tenth_are_explained_and_the_tracers_part_told() -> None:
    assert not list(explain_overheads(made({CONV: 500}, 10, 10)))
    (text,) = explain_overheads(made({CONV: 100, SIGMOID: 0}, 60, 10))
    says_together(text, "Unattributed", "35.3%", "1 delegate call", "2 operators")
    says(text, "microseconds")
    distorted, text = explain_overheads(made({CONV: 100}, 60, 10, untraced_us=110))
    says(distorted, "55%", "0.170", "0.110 ms", "35.3%")
    says_together(text, "0.0600 ms", "35.3%", "tracer")
    busy = made({CONV: 100}, 60, 10, untraced_us=110)
    noise = TracerCost(share=0.55, low=-0.2, high=1.4, rounds=6)
    busy = replace(busy, measured=replace(busy.measured, tracer_cost=noise))
    assert not busy.distorted, "its cost may be zero"
    waiting = replace(made({}, 100, 10), operators=())
    says(next(explain_overheads(waiting)), "1 delegate call", "no operators")
