"""Verdicts on speedups: rarely wrong without a difference, right with one, whatever the noise looks like."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from said import says

from model_profiling.statistics.intervals import Floats, benjamini_hochberg, signed_rank_interval
from model_profiling.statistics.speedup import (
    Launches,
    Rounds,
    Verdict,
    as_launches,
    compare,
    compare_many,
    compare_rounds,
    median_interval,
    precise_enough,
)

JUDGED = (Verdict.FASTER, Verdict.SLOWER)
Noise = Callable[[np.random.Generator, int], Floats]


def swapped(noise: np.random.Generator, slots: Floats) -> Floats:
    """Which experiment goes first in a round is drawn by chance."""
    order = noise.permuted(np.tile([0, 1], (len(slots), 1)), axis=1)
    return np.take_along_axis(slots, order, axis=1)


# Logs of the two medians of each round, without any difference between the experiments.
NOISES: dict[str, Noise] = {
    "normal": lambda n, rounds: 0.02 * n.normal(size=(rounds, 2)),
    "spikes": lambda n, rounds: (
        0.01 * n.normal(size=(rounds, 2)) + (n.random((rounds, 2)) < 0.12) * n.exponential(0.3, (rounds, 2))
    ),
    "wandering": lambda n, rounds: swapped(n, np.cumsum(0.02 * n.normal(size=2 * rounds)).reshape(-1, 2)),
    "two speeds": lambda n, rounds: (
        0.08 * (n.random((rounds, 2)) < 0.35) + 0.003 * n.normal(size=(rounds, 2))
    ),
    "throttling": lambda n, rounds: (
        swapped(n, np.linspace(0, 0.3, 2 * rounds).reshape(-1, 2)) + 0.005 * n.normal(size=(rounds, 2))
    ),
    "heavy tails": lambda n, rounds: 0.01 * n.standard_t(2, (rounds, 2)),
}


def launches(baseline: Rounds, candidate: Rounds) -> tuple[Launches, Launches]:
    return as_launches(baseline), as_launches(candidate)


def measured(logs: Floats, slower: float = 0.0) -> tuple[list[list[float]], list[list[float]]]:
    """Rounds of three iterations around the given medians; the candidate is `slower` by this share."""
    jitter = np.array([0.999, 1.0, 1.004])
    baseline = np.exp(logs[:, :1]) * jitter
    candidate = np.exp(logs[:, 1:]) * (1 + slower) * jitter
    return baseline.tolist(), candidate.tolist()


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("rounds", [3, 6, 10])
def test_false_verdicts_stay_below_five_percent(kind: str, rounds: int) -> None:
    noise = np.random.default_rng(11)
    trials = 100
    made = (measured(NOISES[kind](noise, rounds)) for _ in range(trials))
    wrong = sum(compare_rounds(*pair).verdict in JUDGED for pair in made)
    # The second term is luck: a true 5% stays below the sum in 99 of 100 seeds. This seed is fixed.
    assert wrong <= 0.05 * trials + 2.33 * math.sqrt(0.05 * 0.95 * trials)


def test_a_slowdown_of_three_percent_is_found() -> None:
    noise = np.random.default_rng(14)
    for kind, least in {"wandering": 0.9, "throttling": 0.9, "heavy tails": 0.6, "normal": 0.6}.items():
        found = [compare_rounds(*measured(NOISES[kind](noise, 12), 0.03)).verdict for _ in range(60)]
        assert found.count(Verdict.SLOWER) >= least * 60, kind
        assert Verdict.FASTER not in found


def rounds_of(values: list[float]) -> Rounds:
    return [[value, value, value] for value in values]


def test_a_clear_speedup_in_words() -> None:
    before, after = rounds_of([9.9, 10, 10.1, 10, 10.05, 9.95]), rounds_of([5, 5.05, 4.95, 5, 5, 5.02])
    found = compare_rounds(before, after)
    assert found.verdict is Verdict.FASTER and found.ratio == pytest.approx(2.0, rel=0.01)
    assert found.reason.startswith("1.99") and found.rounds == 6
    assert (found.baseline_median, found.candidate_median) == (10, 5) and found.p_value < 0.05
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_same_the_unknown_and_the_tiny_are_said_to_be_so() -> None:
    steady = compare_rounds(rounds_of([10, 10.01, 9.99] * 4), rounds_of([10.01, 9.99, 10] * 4))
    assert steady.verdict is Verdict.NO_CHANGE
    says(steady.reason, "same", "1.0%")
    wild = compare_rounds(rounds_of([10, 13, 8, 11, 9, 12]), rounds_of([12, 9, 11, 10, 13, 8]))
    assert wild.verdict is Verdict.NO_CHANGE
    says(wild.reason, "noise")
    baseline, candidate = rounds_of([10.0] * 8), rounds_of([10.06, 10.061, 10.059, 10.06] * 2)
    tiny = compare_rounds(baseline, candidate)
    assert tiny.verdict is Verdict.NO_CHANGE and tiny.high is not None and tiny.high < 1
    says(tiny.reason, "below", "1.0%")
    assert compare_rounds(baseline, candidate, practical_threshold=0.001).verdict is Verdict.SLOWER
    # An interval is never narrower than turns are right.
    same = compare_rounds(rounds_of([10.0] * 8), rounds_of([10.0] * 8))
    assert same.low == pytest.approx(1 / 1.003) and same.high == pytest.approx(1.003)


def test_the_interval_respects_rounds_where_the_naive_one_does_not() -> None:
    """Many iterations in few processes must not look like many measurements."""
    noise, wrong = np.random.default_rng(5), 0
    for _ in range(60):
        process = np.exp(0.05 * noise.normal(size=(6, 2)))
        iterations = process[:, :, None] * np.exp(0.002 * noise.normal(size=(6, 2, 200)))
        wrong += compare_rounds(iterations[:, 0].tolist(), iterations[:, 1].tolist()).verdict in JUDGED
    assert wrong <= 6


def test_separate_runs_need_more_and_a_bad_round_hardly_moves_the_answer() -> None:
    for ours, theirs, verdict in (
        (rounds_of([10, 10.1, 9.9] * 3), rounds_of([12, 12.1, 11.9] * 2), Verdict.SLOWER),
        (rounds_of([10, 10.1, 9.9] * 3), rounds_of([10.2, 10.3, 10.1] * 3), Verdict.NO_CHANGE),
        (rounds_of([10, 10]), rounds_of([10, 10]), Verdict.NOT_COMPARABLE),
        ([[]], rounds_of([1] * 6), Verdict.NOT_COMPARABLE),
    ):
        assert compare(as_launches(ours), as_launches(theirs), "apart").verdict is verdict
    baseline, candidate = rounds_of([10.0, 10.1, 9.9, 10.05] * 4), rounds_of([9.0, 9.1, 8.9, 9.05] * 4)
    spoilt = [list(one) for one in candidate]
    spoilt[5] = [90.0, 95.0, 99.0]
    before, after = compare_rounds(baseline, candidate), compare_rounds(baseline, spoilt)
    assert after.verdict is Verdict.FASTER and after.ratio == pytest.approx(before.ratio, rel=0.01)


def test_intervals_and_corrections_are_those_in_the_books() -> None:
    """Wilcoxon's own limits for six values at 95%: the smallest and the largest; against scipy's p-values."""
    from scipy.stats import wilcoxon

    values = np.array([0.3, -0.1, 0.5, 0.2, 0.8, 0.4])
    assert signed_rank_interval(values, 0.95) == (-0.1, 0.8)
    noise = np.random.default_rng(6)
    for count in (6, 9, 15, 25):
        drawn = noise.normal(0.3, 1, count)
        low, high = signed_rank_interval(drawn, 0.95)
        assert wilcoxon(drawn - (low - 1e-9), method="exact").pvalue <= 0.05
        assert wilcoxon(drawn - (high + 1e-9), method="exact").pvalue <= 0.05
        assert wilcoxon(drawn - (low + high) / 2, method="exact").pvalue > 0.05
    raw = np.array([0.01, 0.04, 0.03, 0.005])
    assert benjamini_hochberg(raw) == pytest.approx([0.02, 0.04, 0.04, 0.02])


def test_operators_that_changed_are_found_among_many() -> None:
    noise = np.random.default_rng(10)
    rounds = [measured(NOISES["normal"](noise, 8), 1.0 if i < 3 else 0.0) for i in range(60)]
    pairs = {f"op{i}": launches(*each) for i, each in enumerate(rounds)}
    for way in ("rounds", "apart"):
        found = compare_many(pairs, way)  # type: ignore[arg-type]
        slower = [name for name, one in found.items() if one.verdict is Verdict.SLOWER]
        assert slower[:3] == ["op0", "op1", "op2"]
        assert len(slower) <= 4
    assert compare_many({}, "rounds") == {}


def test_precision_asks_for_the_minimum_and_for_a_narrow_interval() -> None:
    noise = np.random.default_rng(16)
    steady = measured(0.0005 * noise.normal(size=(40, 2)))
    wild = measured(0.2 * noise.normal(size=(40, 2)))

    def looks(pair: tuple[Rounds, Rounds], target: float, minimum: int) -> list[int]:
        parts = ((n, launches(pair[0][:n], pair[1][:n])) for n in range(1, 41))
        return [n for n, part in parts if precise_enough(*part, target, minimum)]

    assert looks(steady, 0.01, 6)[:3] == [7, 9, 12] and looks(steady, 0.01, 12)[0] == 12
    assert looks(steady, 0.01, 3)[0] == 7 and looks(wild, 0.01, 6) == []


def test_the_interval_of_a_median_is_that_of_whole_rounds() -> None:
    """A thousand inferences of three processes are three measurements, not three thousand."""
    generator = np.random.default_rng(5)
    few = [generator.normal(10 * factor, 0.01, 1000).tolist() for factor in (1.0, 1.04, 0.97)]
    low, high = median_interval(few) or (0.0, 0.0)
    assert low < 9.7 and high > 10.4
    many = [generator.normal(10, 0.01, 50).tolist() for _ in range(12)]
    low, high = median_interval([*many, []]) or (0.0, 0.0)
    assert low <= float(np.median(np.concatenate(many))) <= high
    assert 9.99 < low < high < 10.01
    assert median_interval(few[:2]) is None and median_interval([[0.0], [0.0], [0.0]]) is None
