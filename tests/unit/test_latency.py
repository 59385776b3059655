"""Summaries of latencies, drift, two groups, and the warnings made of them, where the truth is known."""

import itertools
import json
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import says

from model_profiling.core.errors import InputError
from model_profiling.statistics.latency import (
    Conditions,
    Floats,
    crowded,
    find_bimodality,
    find_drift,
    find_outliers,
    latency_warnings,
    machine_warnings,
    summarize,
)


@pytest.fixture
def noise() -> np.random.Generator:
    return np.random.default_rng(7)


def test_figures_of_a_set_known_by_heart() -> None:
    summary = summarize([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (summary.count, summary.median, summary.mean, summary.mad) == (5, 3.0, 22.0, 1.0)
    assert (summary.minimum, summary.maximum, summary.outliers) == (1.0, 100.0, (4,))
    assert summary.std == pytest.approx(43.618, abs=1e-3)
    assert summary.drift is None and summary.bimodality is None
    assert summarize([1000.0, *([5.0] * 8), 0.0]).trimmed_mean == 5.0, "without a tenth at each end"
    assert find_outliers(np.array([3.0] * 30 + [9.0])) == (30,) and find_outliers(np.full(30, 3.0)) == ()


def test_outliers_stay_in_and_are_marked(noise: np.random.Generator) -> None:
    values = 10 + 0.1 * noise.normal(size=100)
    values[[17, 60]] = 14.0, 6.0
    summary = summarize(values)
    assert set(summary.outliers) >= {17, 60}
    assert len(summary.outliers) < 6
    assert summary.maximum == 14.0


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_latencies_give_ordered_figures_that_are_json(values: list[float]) -> None:
    summary = summarize(values)
    low, high = min(values), max(values)
    edge = 1e-9 * max(high, 1)
    ordered = [low, summary.p5, summary.p10, summary.median, summary.p90, summary.p95, summary.p99, high]
    assert all(a <= b + edge for a, b in itertools.pairwise(ordered))
    assert low - edge <= summary.trimmed_mean <= high + edge
    assert 1 <= summary.effective_count <= summary.count
    json.dumps(summary.as_dict(), allow_nan=False)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [float("inf")], [1.0, -1.0]])
def test_what_is_no_latency_is_refused(bad: list[float]) -> None:
    with pytest.raises(InputError):
        summarize(bad)


def test_neighbours_that_repeat_each_other_are_worth_less(noise: np.random.Generator) -> None:
    steps = noise.normal(size=600)
    for place in range(1, 600):
        steps[place] += 0.8 * steps[place - 1]
    alone, chained = summarize(10 + noise.random(600)), summarize(50 + steps)
    assert alone.effective_count > 400
    assert chained.effective_count < 150
    assert chained.autocorrelation == pytest.approx(0.8, abs=0.1)


def rate(found: Callable[[Floats], bool], draw: Callable[[], Floats], trials: int = 200) -> float:
    return sum(found(draw()) for _ in range(trials)) / trials


def drifts(values: Floats) -> bool:
    drift = find_drift(values)
    return drift is not None and drift.found


def splits(values: Floats) -> bool:
    modes = find_bimodality(values)
    return modes is not None and modes.found


def test_drift_is_found_and_not_invented(noise: np.random.Generator) -> None:
    def steady() -> Floats:
        return 10 * np.exp(0.03 * noise.normal(size=100))

    def warming() -> Floats:
        return steady() * np.linspace(1, 1.06, 100)

    assert rate(drifts, steady) <= 0.03
    assert rate(drifts, warming) >= 0.95
    found = find_drift(10 * np.linspace(1, 1.10, 200) + 0.05 * noise.normal(size=200))
    assert found.relative_change == pytest.approx(0.095, abs=0.01)

    def wandering() -> Floats:
        steps = noise.normal(size=200)
        for place in range(1, 200):
            steps[place] += 0.8 * steps[place - 1]
        return 10 + 0.2 * steps

    assert rate(drifts, wandering) <= 0.08, "without a trend"
    assert not drifts(10 * np.linspace(1, 1.01, 300) + 0.001 * noise.normal(size=300)), "too small to matter"


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 300])
def test_one_group_is_not_taken_for_two(noise: np.random.Generator, count: int) -> None:
    shapes: dict[str, Callable[[], Floats]] = {
        "normal": lambda: 10 + 0.2 * noise.normal(size=count),
        "long tail": lambda: 10 * np.exp(0.3 * noise.normal(size=count)),
        "spikes": lambda: 10 * np.exp(0.02 * noise.standard_t(2, count)),
        "flat": lambda: 10 + noise.random(count),
        "coarse clock": lambda: np.round(10 + 0.6 * noise.normal(size=count)),
        "one value": lambda: np.full(count, 3.0),
    }
    for name, draw in shapes.items():
        assert rate(splits, draw, 60) <= 0.1, name


def test_two_groups_are_found_with_where_they_are(noise: np.random.Generator) -> None:
    def two_clocks() -> Floats:
        slow = noise.random(100) < 0.3
        return 10 * np.exp(0.01 * noise.normal(size=100) + 0.08 * slow)

    assert rate(splits, two_clocks, 100) >= 0.95
    modes = find_bimodality(two_clocks())
    assert modes.low_mode == pytest.approx(10.0, rel=0.01)
    assert modes.high_mode == pytest.approx(10.83, rel=0.01)
    assert modes.high_share == pytest.approx(0.3, abs=0.15)


@pytest.mark.timeout(120)
def test_a_long_series_is_not_compared_pair_by_pair() -> None:
    values = np.random.default_rng(0).random(200_000) + 1
    tracemalloc.start()
    summarize(values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * values.nbytes


@pytest.mark.parametrize(
    ("threads", "waited", "warned"),
    [(1, 9, False), (2, 0, False), (2, 0.3, False), (2, 1, True), (4, 0.3, False), (4, 0.4, True)],
)
def test_only_several_threads_without_their_cores_are_warned_of(
    threads: int, waited: float, warned: bool
) -> None:
    found = crowded(10**9, int(waited * 10**9), threads)
    assert (found is not None) == warned
    if found:
        says(str(found), f"{threads} threads need {threads} idle cores", "measure with 1 thread")
    assert crowded(0, 0, threads) is None


def test_a_quiet_machine_and_steady_latencies_give_no_warning(noise: np.random.Generator) -> None:
    rounds = (10 + 0.05 * noise.normal(size=(8, 10))).tolist()
    assert latency_warnings(rounds) == ()
    quiet = Conditions(cores=8, governor="performance", load_before=0.4, on_battery=False)
    assert machine_warnings(quiet, threads=1) == ()
    assert machine_warnings(Conditions()) == ()


def test_each_reason_to_doubt_the_machine_has_its_advice() -> None:
    bad = Conditions(
        cores=2,
        governor="schedutil",
        load_before=3.5,
        temperature_before_c=40,
        temperature_after_c=62,
        on_battery=True,
    )
    found = machine_warnings(bad, threads=4)
    assert {warning.code for warning in found} == {"governor", "load", "heat", "battery", "threads"}
    assert all(warning.advice for warning in found)


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("rounds", lambda n: 10 + 0.01 * n.normal(size=(3, 10))),
        ("runs", lambda n: 10 + 0.01 * n.normal(size=(8, 2))),
        ("spread", lambda n: 10 * np.exp(0.3 * n.normal(size=(8, 10)))),
        ("processes", lambda n: 10 * np.exp(0.2 * n.normal(size=(8, 1))) + 0.01 * n.normal(size=(8, 10))),
        ("drift", lambda n: 10 * np.linspace(1, 1.2, 12)[:, None] + 0.05 * n.normal(size=(12, 10))),
        ("bimodal", lambda n: 10 * np.exp(0.2 * (n.random((10, 10)) < 0.4)) + 0.05 * n.normal(size=(10, 10))),
        ("outliers", lambda n: 10 + 0.02 * n.normal(size=(8, 10)) + 3.0 * (n.random((8, 10)) < 0.15)),
        ("warmup", lambda n: 10 + 0.02 * n.normal(size=(8, 10)) + 3.0 * (np.arange(10) == 0)),
    ],
)
def test_each_reason_to_doubt_latencies_is_seen(noise, code, make):
    assert code in {warning.code for warning in latency_warnings(make(noise).tolist())}


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    said = {warning.code: warning.seen for warning in latency_warnings([[1.0]])}
    says(said["rounds"], "1 round")
    says(said["runs"], "1 inference")
    assert [warning.code for warning in latency_warnings([[], []])] == ["nothing"]
