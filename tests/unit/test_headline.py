"""The headline and the bounds: true of what they are said of, and never of what the tracer alone takes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import says, says_together
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.run import advise
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis, series_of
from model_profiling.analysis.summary import analyse_dump
from model_profiling.etdump import read_etdump
from model_profiling.report.breakdown import explain_overheads
from model_profiling.report.data import ExperimentReport, report_data
from model_profiling.report.verdict import answers
from model_profiling.run import Manifest, Metrics, Result, Run, Series, Times
from model_profiling.run import run as opened
from model_profiling.run.manifest import TargetFacts
from model_profiling.run.metrics import Latency, TracerCost
from model_profiling.statistics.latency import summarize

CONV, SIGMOID, LINEAR = "Convolution (NHWC, F32) IGEMM", "Sigmoid (NC)", "Fully Connected (NC, F32) GEMM"


def made(
    operators: dict[str, int], inside: int, outside: int, untraced_us: float | None = None
) -> SeriesAnalysis:
    """One delegate call: its operators' microseconds, what it takes beside them, what is around it."""
    clock, events = 0, []
    for name, spent in operators.items():
        events.append(ProfileEvent(None, 0, 0, -1, name, None, clock, clock + 1000 * spent))
        clock += 1000 * spent
    events.append(ProfileEvent("DELEGATE_CALL", 0, 0, -1, None, None, 0, clock + 1000 * inside))
    end = clock + 1000 * (inside + outside)
    events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, end))
    table = read_etdump(Dump((Block("Execute", -1, (), tuple(events)),), True, False).to_bytes())
    dump = opened.Dump(Path("made.etdump"), Series("made", 1), Times.HARDWARE)
    latency = None
    if untraced_us is not None:
        cost = TracerCost(end / 1e3 / untraced_us - 1)
        whole = summarize([untraced_us / 1e3])
        latency = Latency(experiment="made", threads=1, end_to_end_ms=whole, tracer_cost=cost)
    return series_of([analyse_dump(table, dump)], latency)


def where_time_goes(series: SeriesAnalysis) -> str:
    """The first answer of a report on a run of this series alone."""
    target = TargetFacts("host", "linux", Times.HARDWARE)
    manifest = Manifest(target=target, results=(Result(experiment="made", threads=1),))
    run = Run(Path("d"), manifest, metrics=Metrics(times=Times.HARDWARE))
    known = ExperimentReport(series.series, Times.HARDWARE, None, None, series.measured, series)
    return answers(replace(report_data(run, None), experiments=(known,))).where_time_goes


_US = st.integers(0, 300)


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
        parts |= {"time in no operator": inside + outside - tracer}
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


def test_what_the_tracer_takes_is_no_second_part_of_an_inference() -> None:
    said = where_time_goes(made({CONV: 800, SIGMOID: 70}, 0, 130, untraced_us=900))
    says(said, "Convolution", "80.0%", "Elementwise", "7.0%")
    assert "tracer" not in said and "overhead" not in said
    said = where_time_goes(made({CONV: 700, SIGMOID: 70}, 0, 230, untraced_us=900))
    says_together(said, "Convolution", "70.0%", "Framework overhead", "23.0%", "10.0", "tracer")


def test_bounds_are_of_the_time_without_the_tracer_and_never_count_what_it_takes() -> None:
    operators = {CONV: 100, SIGMOID: 20}
    traced = made(operators, 260, 20)
    assert traced.gain_pct(0.1) == pytest.approx(25)
    says(traced.bounds_are_of, "0.400 ms with")
    known = made(operators, 260, 20, untraced_us=150)
    assert known.distorted and known.tracing.ms == pytest.approx(0.25)
    assert known.gain_pct(0.1) == pytest.approx(66.67)
    assert known.gain_pct(0.0, 0.28) == pytest.approx(20), (
        "30 us of the overheads are there without the tracer"
    )
    slow_moment = made({CONV: 950, SIGMOID: 20}, 20, 10, untraced_us=900)
    assert slow_moment.gain_pct(0.95) == pytest.approx(100 * 950 / 970, abs=0.01), "never 100% of anything"
    says(known.bounds_are_of, "0.150 ms without")
    beside = {finding.id: finding for finding in advise([known])}["delegate-overhead"]
    assert beside.max_gain_pct == pytest.approx(100 * 30 / 150 * 260 / 280, abs=0.01)
    assert beside.as_dict()["max_gain_of"] == known.bounds_are_of
    only_tracing = made(operators, 260, 20, untraced_us=121)
    assert "delegate-overhead" not in {finding.id for finding in advise([only_tracing])}


def test_overheads_above_a_tenth_are_explained_and_the_tracers_part_told() -> None:
    assert not list(explain_overheads(made({CONV: 500}, 10, 10)))
    (text,) = explain_overheads(made({CONV: 100, SIGMOID: 0}, 60, 10))
    says_together(text, "Unattributed", "35.3%", "1 delegate call", "2 operators")
    says(text, "1", "microsecond", "not measured")
    distorted, text = explain_overheads(made({CONV: 100}, 60, 10, untraced_us=110))
    says(distorted, "made, 1 thread", "55%", "0.170", "0.110 ms", "35.3%")
    says_together(text, "0.0600 ms", "35.3%", "tracer")
    waiting = replace(made({}, 100, 10), operators=())
    says(next(explain_overheads(waiting)), "1 delegate call", "no operators")
