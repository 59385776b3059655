"""Finds where the level of a history changed: runs of the same thing in order, each with one latency.

The change-point model for monitoring by Hawkins, Qiu and Kang (Journal of Quality Technology 35, 2003): after
every run, compare all splits of the history into before and after, with level and noise estimated from the
history itself. The limit for the largest difference makes a first false alarm equally rare at each look; so
whoever looks after every run knows how often a history without a change shows one, whatever its length.
Values further from the middle than three times the noise count as three (Huber's score): a single bad run
cannot cause an alarm. Two more checks can only prevent an alarm: ranks alone must separate before from after
(Mann and Whitney), which no outlier can force, and the difference must hold when neighbouring runs resemble
each other.

Limits are simulated (`bench/change_points.py calibrate`); how well they hold: docs/explanation/history.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from model_profiling.core.errors import InputError
from model_profiling.statistics.intervals import student_reach

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int_]

FEWEST_RUNS = 11
"""With fewer, ranks cannot separate before from after."""
LONGEST_LOOK = 100
"""Runs a look goes back: older ones say little about today, and long histories stay quick."""
FALSE_ALARM_EACH_LOOK = 0.0005
"""Upper bound on how often a look gives a history's first false alarm, with independent normal noise."""
CONFIDENCE = 0.95
FARTHEST = 3.0
"""Distance from the middle, in units of the noise, at which a run's score is clipped."""

_LIMIT = (3.757, 25.66, -337.7, 6363.0, -22640.0)
"""Coefficients of the limit for n runs, a polynomial in 1/n."""
_MORE_WHERE_CUT = 0.05
"""Added to the limit where old runs are cut: such looks resemble each other less, so more alarms are new."""
_RANKS = {0: 0.005, 20: 0.0007}
"""From this many runs on: the largest p-value of the rank test that still allows an alarm."""
_EXACT_RANKS = 8
_BY_CHANCE = 0.5
"""Correlation of neighbours, times the root of the number of runs, that is put down to chance."""
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN = 1.2533
"""How much wider a median scatters than a mean."""
_LEAST_NOISE = 0.0005
"""0.05%: smaller differences between readings are not worth telling apart."""
_PASSES = 2
_LOOKS_AT_ONCE = (16, 32, 64)
"""Looks taken together: few at first, since those behind an alarm are for nothing."""
_PLACES = -2 * math.log(1 - math.sqrt(CONFIDENCE))
"""At that confidence, how far the squared statistic at the true place lies below its maximum, at most."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level. Runs are numbered from 0."""

    first: int
    """Most likely first run at the new level."""
    earliest: int
    latest: int
    """95% confidence range of that run."""
    found: int
    """The run after which the change was first detected."""
    change: float
    """Relative change of the typical latency: 0.03 means 3% slower."""
    low: float
    high: float
    """95% interval of `change`."""
    before: float
    after: float
    """Typical latencies on both sides."""


@dataclass(frozen=True, slots=True)
class Level:
    """Runs between two changes."""

    first: int
    last: int
    typical: float
    """Typical latency."""


@dataclass(frozen=True, slots=True)
class ChangePoints:
    """Changes and levels of a history, and how far to trust them."""

    runs: int
    changes: tuple[ChangePoint, ...]
    levels: tuple[Level, ...]
    noise: float | None
    """Relative noise from run to run within a level: 0.01 means 1%. None with too few runs."""
    false_alarms: float

    @property
    def too_few(self) -> bool:
        return self.runs < FEWEST_RUNS


def find_changes(
    histories: Iterable[tuple[Sequence[float], Sequence[float] | None]],
) -> list[ChangePoints]:
    """Find the changes in the values of each history, given in order of measurement, as someone who looks
    after every run would. Errors are relative standard errors (0.01 means 1%): values less certain than the
    noise from run to run count for less.

    Each history waits for its next scan: numpy scans for all at once, which takes hardly longer than for one.
    """
    searches = [_search(values, errors) for values, errors in histories]
    ended = dict[int, ChangePoints]()
    scans: dict[int, Scan | None] = dict.fromkeys(range(len(searches)))
    while scans:
        looks = dict[int, Looks]()
        for number, scanned in scans.items():
            try:
                search = searches[number]
                looks[number] = next(search) if scanned is None else search.send(scanned)
            except StopIteration as end:
                ended[number] = end.value
        scans = dict(zip(looks, _scan_together([*looks.values()]), strict=True))
    return [ended[number] for number in range(len(searches))]


def _search(values: Sequence[float], errors: Sequence[float] | None) -> Search[ChangePoints]:
    latencies = np.asarray(values, dtype=np.float64)
    if latencies.ndim != 1 or not np.isfinite(latencies).all() or (latencies <= 0).any():
        what = "a history has a latency that is not above zero"
        raise InputError(what, "leave out runs that were not measured")
    own = np.zeros(len(latencies)) if errors is None else np.asarray(errors, dtype=np.float64)
    logs = np.log(latencies)
    starts, alarms = [0], list[int]()
    while alarm := (yield from _first_alarm(logs, own, starts[-1], alarms[-1] + 1 if alarms else 0)):
        starts.append(alarm[0])
        alarms.append(alarm[1])
    return (yield from _described(logs, own, starts, alarms))


def false_alarms(runs: int) -> float:
    """Upper bound on the share of unchanged histories of `runs` runs that show a change."""
    return 1 - (1 - FALSE_ALARM_EACH_LOOK) ** max(0, runs - FEWEST_RUNS + 1)


@functools.cache
def limit(runs: int) -> float:
    """Value the statistic must exceed in a look at `runs` runs since the last change."""
    inverse = 1 / min(max(runs, FEWEST_RUNS), LONGEST_LOOK)
    beyond = _MORE_WHERE_CUT if runs > LONGEST_LOOK else 0.0
    return float(sum(factor * inverse**power for power, factor in enumerate(_LIMIT))) + beyond


@dataclass(frozen=True, slots=True)
class Scan:
    """All splits of several histories, one row each."""

    statistics: Floats
    """For the split after the first run, the second, ...: difference of levels divided by its noise."""
    split: npt.NDArray[np.intp]
    """Number of runs before the split with the largest statistic."""
    noise: Floats

    @property
    def largest(self) -> Floats:
        best: Floats = self.statistics[np.arange(len(self.split)), self.split - 1]
        return best


Looks: TypeAlias = tuple[Floats, Floats, Counts]
"""What `scan` takes: a row for each look at a history."""
Outcome = TypeVar("Outcome")
Search: TypeAlias = Generator[Looks, Scan, Outcome]


def scan(logs: Floats, errors: Floats | None = None, counts: Counts | None = None) -> Scan:
    """Compare before with after at every split of each row of `logs`.

    `errors` as in `find_changes`; `counts`: how many values each row has, where rows differ. The noise is
    first estimated from differences of neighbours, which a step hardly affects; then from the residuals
    around the two levels of the best split.
    """
    rows, longest = logs.shape
    counts = np.full(rows, longest) if counts is None else counts
    there = np.arange(longest) < counts[:, None]
    apart = np.abs(np.diff(logs, axis=1)) / math.sqrt(2)
    noise = np.maximum(_MAD_TO_SIGMA * _medians(apart, there[:, 1:]), _LEAST_NOISE)
    weights = there.astype(np.float64)
    if errors is not None and errors.any():
        # A run's noise is the noise from run to run, or its own error where that is larger.
        variances = np.maximum(1.0, (errors / noise[:, None]) ** 2)
        weights = weights / np.sqrt(variances)
        widened = np.sqrt((variances[:, 1:] + variances[:, :-1]) / 2)
        noise = _MAD_TO_SIGMA * _medians(apart / widened, there[:, 1:])
    centred = np.where(there, logs - _medians(logs, there)[:, None], 0.0) * weights
    before = np.cumsum(weights**2, axis=1)
    whole, before = before[:, -1:], before[:, :-1]
    after = np.where(there[:, 1:], whole - before, np.inf)
    shares = np.where(there[:, 1:], np.sqrt(before * (whole - before) / whole), 0.0)
    for turn in range(_PASSES + 1):
        noise = np.maximum(noise, _LEAST_NOISE)
        scores = np.clip(centred / noise[:, None], -FARTHEST, FARTHEST)
        sums = np.cumsum(scores * weights, axis=1)
        total, sums = sums[:, -1:], sums[:, :-1]
        statistics = np.abs((total - sums) / after - sums / before) * shares
        split = statistics.argmax(axis=1) + 1
        if turn < _PASSES:
            between = total[:, 0] ** 2 / whole[:, 0] + statistics[np.arange(rows), split - 1] ** 2
            noise = noise * np.sqrt(np.maximum((scores**2).sum(axis=1) - between, 0) / (counts - 2))
    return Scan(statistics, split, noise)


def _scan_together(looks: Sequence[Looks]) -> Iterator[Scan]:
    """The scan of each, from one scan of all of them side by side."""
    if not looks:
        return
    counts = np.concatenate([look[2] for look in looks])
    logs, errors = np.zeros((2, len(counts), counts.max()))
    ends = np.cumsum([len(look[2]) for look in looks]).tolist()
    for (own_logs, own_errors, own_counts), end in zip(looks, ends, strict=True):
        place = slice(end - len(own_counts), end), slice(own_logs.shape[1])
        logs[place], errors[place] = own_logs, own_errors
    whole = scan(logs, errors, counts)
    for look, end in zip(looks, ends, strict=True):
        rows = slice(end - len(look[2]), end)
        yield Scan(whole.statistics[rows, : look[0].shape[1] - 1], whole.split[rows], whole.noise[rows])


def _medians(values: Floats, there: npt.NDArray[np.bool_]) -> Floats:
    """Median of each row over the values where `there` is true."""
    ordered = np.sort(np.where(there, values, np.inf), axis=1)
    counts = there.sum(axis=1)
    rows = np.arange(len(values))
    middle: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return middle


def _median(values: Floats) -> float:
    """numpy's own takes ten times as long for few values."""
    ordered = np.sort(values)
    return float(ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2


def holds(logs: Floats, split: int, noise: float, beyond: float) -> bool:
    """Whether an alarm passes the checks by ranks and resemblance; `beyond`: the statistic over its limit."""
    allowed = next(share for fewest, share in reversed(_RANKS.items()) if len(logs) >= fewest)
    if _rank_p(logs, split) > allowed:
        return False
    return beyond > _resemblance(logs, split, noise, by_chance=_BY_CHANCE / math.sqrt(len(logs)))


def _rank_p(logs: Floats, split: int) -> float:
    """Two-sided p-value of Mann and Whitney's test, as in scipy.stats, which takes seconds to import. The
    normal approximation is for ties (a clock's steps) and where both sides have many runs."""
    before, after = logs[:split], logs[split:]
    wins = float((before[:, None] > after).sum() + (before[:, None] == after).sum() / 2)
    most, few = len(before) * len(after), min(len(before), len(after))
    larger = max(wins, most - wins)
    counts = np.unique(logs, return_counts=True)[1]
    if few <= _EXACT_RANKS and len(counts) == len(logs):
        ways = _ways_to_win(few, len(logs))
        return min(1.0, 2 * float(ways[math.ceil(larger) :].sum() / ways.sum()))
    runs = len(logs)
    ties = float((counts**3 - counts).sum()) / (runs * (runs - 1))
    spread = math.sqrt(most / 12 * (runs + 1 - ties))
    return min(1.0, math.erfc((larger - most / 2 - 0.5) / spread / math.sqrt(2))) if spread else 1.0


@functools.cache
def _ways_to_win(few: int, runs: int) -> Floats:
    """In how many orders of `runs` different values `few` of them win 0, 1, ... times over the others."""
    most = few * (runs - few)
    ways = np.zeros(most + 1)
    ways[0] = 1.0
    for place in range(1, few + 1):
        longer = runs - few + place
        for number in range(most, longer - 1, -1):
            ways[number] -= ways[number - longer]
        for number in range(place, most + 1):
            ways[number] += ways[number - place]
    return ways


def _first_alarm(logs: Floats, errors: Floats, start: int, run: int) -> Search[tuple[int, int] | None]:
    """Where the level from `start` ends, and the first run from `run` on after which that shows."""
    first, turn = max(run, start + FEWEST_RUNS - 1), 0
    while first < len(logs):
        looks = np.arange(first, min(first + _LOOKS_AT_ONCE[turn], len(logs)))
        first, turn = first + len(looks), min(turn + 1, len(_LOOKS_AT_ONCE) - 1)
        begins = np.maximum(start, looks + 1 - LONGEST_LOOK)
        counts = looks + 1 - begins
        places = np.minimum(begins[:, None] + np.arange(counts.max()), len(logs) - 1)
        splits = yield logs[places], errors[places], counts
        beyond = splits.largest / [limit(run + 1 - start) for run in looks.tolist()]
        for at in np.flatnonzero(beyond > 1).tolist():
            recent = logs[begins[at] : looks[at] + 1]
            split = int(splits.split[at])
            if holds(recent, split, float(splits.noise[at]), float(beyond[at])):
                return int(begins[at]) + split, int(looks[at])
    return None


def _resemblance(logs: Floats, split: int, noise: float, by_chance: float = 0.0) -> float:
    """How much wider levels scatter because neighbours resemble each other; 1 where they do not."""
    sides = (logs[:split], logs[split:])
    left = np.clip(np.concatenate([side - _median(side) for side in sides]) / noise, -FARTHEST, FARTHEST)
    left -= left.mean()
    square = float((left**2).sum())
    alike = float((left[1:] * left[:-1]).sum()) / square - by_chance if square else 0.0
    alike = min(0.9, max(0.0, alike))
    return math.sqrt((1 + alike) / (1 - alike))


def _described(logs: Floats, errors: Floats, starts: list[int], alarms: list[int]) -> Search[ChangePoints]:
    """Describe each change again, now that the levels on both sides are known to their ends."""
    ends = [*starts[1:], len(logs)]
    changes = []
    for number, run in enumerate(alarms):
        begin = max(starts[number], starts[number + 1] - LONGEST_LOOK)
        end = min(ends[number + 1], starts[number + 1] + LONGEST_LOOK)
        change = yield from _change(logs[begin:end], errors[begin:end], begin, run)
        starts[number + 1] = ends[number] = change.first
        changes.append(change)
    medians = [
        (first, end, _median(logs[first:end])) for first, end in zip(starts, ends, strict=True) if end > first
    ]
    levels = tuple(Level(first, end - 1, math.exp(median)) for first, end, median in medians)
    if len(logs) < FEWEST_RUNS:
        return ChangePoints(len(logs), (), levels, None, 0.0)
    residuals = np.concatenate([logs[first:end] - median for first, end, median in medians])
    noise = _MAD_TO_SIGMA * _median(np.abs(residuals))
    return ChangePoints(len(logs), tuple(changes), levels, noise, false_alarms(len(logs)))


def _change(logs: Floats, errors: Floats, begin: int, alarm: int) -> Search[ChangePoint]:
    splits = yield logs[None], errors[None], np.array([len(logs)])
    split, noise = int(splits.split[0]), float(splits.noise[0])
    squares = splits.statistics[0] ** 2
    wider = _resemblance(logs, split, noise)
    likely = np.flatnonzero(squares >= squares.max() - _PLACES * wider**2) + 1
    before, after = _median(logs[:split]), _median(logs[split:])
    scatter = noise * _MEDIAN_TO_MEAN * math.sqrt(1 / split + 1 / (len(logs) - split))
    half = student_reach(len(logs) - 2, CONFIDENCE) * scatter * wider
    shift = after - before
    return ChangePoint(
        first=begin + split,
        earliest=begin + int(likely.min()),
        latest=begin + int(likely.max()),
        found=alarm,
        change=math.expm1(shift),
        low=math.expm1(shift - half),
        high=math.expm1(shift + half),
        before=math.exp(before),
        after=math.exp(after),
    )
