"""Summaries of latencies, and reasons to trust them less."""

import itertools
import json
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import says

from model_profiling.config.series import Series
from model_profiling.core.errors import InputError
from model_profiling.runner.machine import DeviceState, MachineFacts
from model_profiling.runs.figures import interruption_warnings, latency_warnings, machine_warnings
from model_profiling.runs.manifest import Machine
from model_profiling.statistics.measure import Measure, summarize

ON = Series("on", 1)


@pytest.fixture
def noise() -> np.random.Generator:
    return np.random.default_rng(7)


def test_figures_of_a_set_known_by_heart() -> None:
    summary = summarize([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (summary.count, summary.median, summary.mean, summary.mad) == (5, 3.0, 22.0, 1.0)
    assert (summary.minimum, summary.maximum) == (1.0, 100.0)
    assert summary.std == pytest.approx(43.618, abs=1e-3)


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_latencies_give_ordered_figures_that_are_json(values: list[float]) -> None:
    summary = summarize(values)
    low, high = min(values), max(values)
    edge = 1e-9 * max(high, 1)
    ordered = [low, summary.p5, summary.p10, summary.median, summary.p90, summary.p95, summary.p99, high]
    assert all(a <= b + edge for a, b in itertools.pairwise(ordered))
    json.dumps(asdict(summary), allow_nan=False)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")], [1.0, -1.0]])
def test_what_is_no_latency_is_refused(bad: list[float]) -> None:
    with pytest.raises(InputError):
        summarize(bad)


@pytest.mark.timeout(120)
def test_a_long_series_is_not_compared_pair_by_pair() -> None:
    values = np.random.default_rng(0).random(200_000) + 1
    tracemalloc.start()
    summarize(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * values.nbytes


@pytest.mark.parametrize(
    ("measure", "share", "said"),
    [
        ("wall time", 0.02, ""),
        ("wall time", 0.40, "other programs took 40% of the CPU; the inferences that they interrupted do"),
        ("cpu time", 0.79, "other programs took 79% of the CPU; CPU time is shown instead of wall time"),
        ("wall time, interrupted", 0.5, "other programs took 50% of the CPU; the latency includes"),
        ("wall time, unchecked", 0.0, "this runner does not say"),
    ],
)
def test_the_one_warning_about_noise_says_what_was_done(measure: Measure, share: float, said: str) -> None:
    warning = "".join(one.said for one in interruption_warnings(ON, measure, share, 0.044))
    assert warning.startswith(said)
    assert ("at most 4% too long" in warning) == (measure == "cpu time")


def test_a_quiet_machine_gives_no_warning_and_each_doubt_has_its_advice(noise: np.random.Generator) -> None:
    rounds = (10 + 0.05 * noise.normal(size=(8, 10))).tolist()
    assert not list(latency_warnings(ON, rounds))
    assert "rounds" in {warning.code for warning in latency_warnings(ON, rounds[:3])}
    assert "runs" in {warning.code for warning in latency_warnings(ON, [each[:2] for each in rounds])}
    quiet = MachineFacts(cores=8, governor="performance", on_battery=False)
    assert not list(machine_warnings(Machine(quiet), 1))
    assert not list(machine_warnings(Machine(), 1)) and not list(machine_warnings(Machine(MachineFacts()), 1))
    laptop = MachineFacts(cores=2, governor="schedutil", on_battery=True)
    phone = MachineFacts(governor="walt", device=DeviceState(thermal_status=3))
    found = [*machine_warnings(Machine(laptop), 4), *machine_warnings(Machine(phone), 1)]
    assert [warning.code for warning in found] == ["governor", "battery", "threads", "hot"]
    assert all(warning.advice for warning in found)
    said = {warning.code: warning.said for warning in latency_warnings(ON, [[1.0]])}
    says(said["rounds"], "few rounds were measured: 1;")
    says(said["runs"], "few inferences: 1;")
    assert [warning.code for warning in latency_warnings(ON, [[], []])] == ["nothing"]
