"""Changes in histories of latencies: found soon, seldom where there are none, told with place and size."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import stdtrit

from model_profiling.core.errors import InputError
from model_profiling.statistics import change_points as points
from model_profiling.statistics.intervals import student_reach

Floats = npt.NDArray[np.float64]
STEP_AT = 50


def find_changes(values: Sequence[float], errors: Sequence[float] | None = None) -> points.ChangePoints:
    return points.find_changes([(values, errors)])[0]


def noise(rows: int, runs: int, seed: int = 1) -> Floats:
    return 0.01 * np.random.default_rng(seed).normal(size=(rows, runs))


def alarmed(logs: Floats, looks: range) -> Floats:
    """Which of several histories give an alarm at one of the looks."""
    found = np.zeros(len(logs), dtype=bool)
    for runs in looks:
        seen = points.scan(logs[:, :runs])
        beyond = seen.largest / points.limit(runs)
        for row in np.flatnonzero((beyond > 1) & ~found):
            told = int(seen.split[row]), float(seen.noise[row]), float(beyond[row])
            found[row] = points.holds(logs[row, :runs], *told)
    return found


def test_few_alarms_where_nothing_changed_and_steps_of_three_percent_found_soon() -> None:
    assert points.false_alarms(100) <= 0.05
    share = alarmed(noise(300, 100), range(points.FEWEST_RUNS, 101)).mean()
    # 300 histories scatter by 1.2 points around a true share of 4.4%.
    assert share <= 0.05 + 2 * 0.012
    logs = noise(300, STEP_AT + 5, seed=2)
    logs[:, STEP_AT:] += np.log1p(0.03)
    assert alarmed(logs, range(STEP_AT + 1, STEP_AT + 6)).mean() >= 0.95 - 2 * 0.013


def test_a_change_is_told_with_place_and_size_as_it_was_first_seen() -> None:
    logs = noise(1, 80, seed=3)[0]
    logs[STEP_AT:] += np.log1p(0.04)
    told = find_changes(np.exp(logs).tolist())
    (change,) = told.changes
    assert change.earliest <= STEP_AT <= change.latest and change.low < 0.04 < change.high
    assert STEP_AT < change.found < STEP_AT + 5
    assert told.noise == pytest.approx(0.01, rel=0.35)
    assert [level.first for level in told.levels] == [0, change.first]
    assert told.levels[1].typical / told.levels[0].typical == pytest.approx(1 + change.change)
    # Who looked right then saw it too: an alarm does not come and go.
    seen_then = find_changes(np.exp(logs[: change.found + 1]).tolist())
    assert [each.found for each in seen_then.changes] == [change.found]
    assert not find_changes(np.exp(logs[: change.found]).tolist()).changes


def test_histories_searched_together_are_answered_as_each_alone() -> None:
    chance = np.random.default_rng(5)
    logs = [noise(1, runs, seed=runs)[0] for runs in (0, 5, 40, 90, 230)]
    for row in logs[2:]:
        row[20:] += np.log1p(0.05)
        row[35:] -= np.log1p(0.04)
    errors = [0.003 * chance.random(len(row)) for row in logs]
    histories = [(np.exp(row).tolist(), error.tolist()) for row, error in zip(logs, errors, strict=True)]
    together = points.find_changes(histories)
    assert [bool(answer.changes) for answer in together] == [False, False, True, True, True]
    for answer, history in zip(together, histories, strict=True):
        alone = find_changes(*history)
        parts = (*answer.changes, *answer.levels), (*alone.changes, *alone.levels)
        for ours, theirs in zip(*parts, strict=True):
            assert asdict(ours) == pytest.approx(asdict(theirs), rel=1e-9)


def test_a_change_is_as_uncertain_as_students_distribution_says() -> None:
    for freedom in range(points.FEWEST_RUNS - 2, 2 * points.LONGEST_LOOK):
        assert student_reach(freedom, 0.95) == pytest.approx(stdtrit(freedom, 0.975), rel=1e-12)


def test_several_changes_one_after_the_other_and_what_creeps_are_steps() -> None:
    logs = noise(1, 100, seed=4)[0]
    for first, step in ((30, 0.05), (55, -0.04), (80, 0.06)):
        logs[first:] += np.log1p(step)
    changes = find_changes(np.exp(logs).tolist()).changes
    assert [change.change > 0 for change in changes] == [True, False, True]
    assert all(abs(change.first - first) <= 1 for change, first in zip(changes, (30, 55, 80), strict=True))
    logs = noise(1, 100, seed=9)[0] + np.linspace(0, np.log1p(0.07), 100)
    changes = find_changes(np.exp(logs).tolist()).changes
    assert changes and all(change.change > 0 for change in changes)


@pytest.mark.parametrize("bad", [[40], [40, 41], [20, 40, 60, 70]])
def test_single_bad_runs_are_no_change_and_hide_none(bad: list[int]) -> None:
    logs = noise(1, 90, seed=5)[0]
    logs[bad] += 1.0
    assert not find_changes(np.exp(logs).tolist()).changes
    logs[75:] += 0.04
    (change,) = find_changes(np.exp(logs).tolist()).changes
    assert abs(change.first - 75) <= 1


@pytest.mark.parametrize("ties", [False, True])
def test_ranks_are_compared_as_scipy_does(ties: bool) -> None:
    """Importing scipy.stats takes seconds, so that it is not used."""
    from scipy.stats import mannwhitneyu

    chance = np.random.default_rng(3)
    for runs, split in ((11, 3), (40, 6), (90, 8), (90, 45), (100, 98)):
        logs = chance.normal(size=runs) + 0.7 * (np.arange(runs) >= split)
        logs = np.round(logs, 1) if ties else logs
        exact = min(split, runs - split) <= 8 and not ties
        expected = mannwhitneyu(logs[:split], logs[split:], method="exact" if exact else "asymptotic").pvalue
        assert points._rank_p(logs, split) == pytest.approx(expected, rel=1e-9)


def test_too_few_runs_tell_nothing_and_uncertain_ones_count_for_less() -> None:
    told = find_changes([1.0] * 4 + [2.0] * (points.FEWEST_RUNS - 5))
    assert told.too_few and told.noise is None
    assert not told.changes and told.false_alarms == 0
    assert not find_changes([]).levels
    logs = noise(1, 60, seed=6)[0]
    logs[50:56] += 0.04
    wide = np.zeros(60)
    assert find_changes(np.exp(logs[:56]).tolist(), wide[:56].tolist()).changes
    wide[50:56] = 0.10
    assert not find_changes(np.exp(logs[:56]).tolist(), wide[:56].tolist()).changes


def test_long_histories_and_readings_that_never_differ() -> None:
    logs = noise(1, 2 * points.LONGEST_LOOK + 50, seed=7)[0]
    logs[-10:] += 0.04
    (change,) = find_changes(np.exp(logs).tolist()).changes
    assert abs(change.first - (len(logs) - 10)) <= 1
    assert not find_changes([1.25] * 40).changes
    (change,) = find_changes([1.25] * 30 + [1.30] * 10).changes
    assert (change.first, change.earliest, change.latest) == (30, 30, 30)


def test_what_is_longer_ago_than_a_look_says_nothing_of_a_change() -> None:
    logs = noise(1, 260, seed=11)[0]
    logs[150:] += 0.04
    logs[240:] -= 0.06
    changes = find_changes(np.exp(logs).tolist()).changes
    assert [change.first for change in changes] == [150, 240]
    for whole in changes:
        recent = find_changes(np.exp(logs[whole.first - points.LONGEST_LOOK :]).tolist())
        (same,) = (each for each in recent.changes if each.first == points.LONGEST_LOOK)
        assert (same.change, same.low, same.high) == pytest.approx((whole.change, whole.low, whole.high))


@pytest.mark.parametrize("values", [[1.0, 0.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_what_is_no_latency_is_refused(values: list[float]) -> None:
    with pytest.raises(InputError, match="above zero"):
        find_changes(values)
