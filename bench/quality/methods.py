"""Ways to say which of two programs is faster, each given the same pool and about the same time.

A method gets its trial out of the pool as it would have got it from the machine. Where the order of time is
what a method suffers from (all of one, then all of the other), that order is kept: its two halves are
neighbouring stretches of the pool. Where it measures both at once, rounds or launches are drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model_profiling.statistics.latency import CROWDED_LOOK, crowded
from model_profiling.statistics.lockstep import (
    FIRST_LOOK,
    Launches,
    compare_launches,
    precise_enough_launches,
)
from model_profiling.statistics.speedup import EXACT_ROUNDS, Speedup, compare_rounds
from quality.pools import BUDGET_S, CLOCK_NS, Launch, Pool, Process
from quality.programs import Pair

LEVEL = 0.05
EQUAL_LAUNCHES = 12
"""What so many launches of two programs take is the time that every method but the shortest gets."""
_WARMUP_PROCESSES = 1
_LEAST_PROCESSES = 3
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answer:
    """Baseline over candidate, whether the method takes it for real, and the seconds it measured for."""

    ratio: float
    sure: bool
    seconds: float
    refused: bool = False
    """Whether it ended because the threads had too few cores."""

    def claims(self, threshold: float) -> int:
        """-1 for slower, 1 for faster, 0 for neither; what matters less than `threshold` is not claimed."""
        if not self.sure or self.ratio == 1 or max(self.ratio, 1 / self.ratio) - 1 < threshold:
            return 0
        return 1 if self.ratio > 1 else -1


Method = Callable[[Pool, Pair, random.Random], Answer]


def equal_seconds(pool: Pool) -> float:
    """The time that methods share; less where the pool's processes do not reach so far."""
    reach = _began(pool.rounds[-1]) - _began(pool.rounds[0])
    return min(EQUAL_LAUNCHES * float(np.mean([one.pair_seconds for one in pool.launches])), reach)


def _began(processes: dict[str, Process]) -> float:
    return min(process.began_s for process in processes.values())


def _halves(pool: Pool, pair: Pair, draw: random.Random) -> tuple[list[Process], list[Process], float]:
    """All of the baseline, then all of the candidate: two neighbouring stretches of time. The processes of
    other programs stand in the gaps, so there are fewer than in a trial of its own, from the same moments.
    """
    length = equal_seconds(pool)
    count = round(len(pool.rounds) * length / (_began(pool.rounds[-1]) - _began(pool.rounds[0])))
    each = max(_LEAST_PROCESSES, min(count, len(pool.rounds)) // 2)
    first = draw.randrange(len(pool.rounds) - 2 * each + 1)
    ours = [one[pair.baseline] for one in pool.rounds[first : first + each]]
    theirs = [one[pair.candidate] for one in pool.rounds[first + each : first + 2 * each]]
    return ours, theirs, length


def _inferences(processes: Sequence[Process]) -> Floats:
    return np.concatenate([process.iterations_ns for process in processes]).astype(np.float64)


def naive(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    ours, theirs, seconds = _halves(pool, pair, draw)
    ratio = float(np.median(_inferences(ours)) / np.median(_inferences(theirs)))
    return Answer(ratio, True, seconds)


def naive_tested(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    from scipy.stats import mannwhitneyu

    ours, theirs, seconds = _halves(pool, pair, draw)
    before, after = _inferences(ours), _inferences(theirs)
    sure = mannwhitneyu(before, after).pvalue < LEVEL
    return Answer(float(np.median(before) / np.median(after)), bool(sure), seconds)


def _commands(pool: Pool, pair: Pair, draw: random.Random) -> tuple[Floats, Floats, float]:
    """What hyperfine times: whole commands, start and loading included, after runs to warm up."""
    ours, theirs, seconds = _halves(pool, pair, draw)
    before, after = (
        np.array([process.seconds for process in side[_WARMUP_PROCESSES:]]) for side in (ours, theirs)
    )
    return before, after, seconds


def hyperfine(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    """As it prints: "A ran 1.03 +- 0.02 times faster than B", the deviations of both carried over."""
    before, after, seconds = _commands(pool, pair, draw)
    ratio = float(before.mean() / after.mean())
    spread = ratio * float(np.hypot(before.std(ddof=1) / before.mean(), after.std(ddof=1) / after.mean()))
    return Answer(ratio, abs(ratio - 1) > spread, seconds)


def hyperfine_tested(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    """With the t-test of Welch that comes with it as a script."""
    from scipy.stats import ttest_ind

    before, after, seconds = _commands(pool, pair, draw)
    sure = ttest_ind(before, after, equal_var=False).pvalue < LEVEL
    return Answer(float(before.mean() / after.mean()), bool(sure), seconds)


def interleaved(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    """As google-benchmark does it with random interleaving and its `compare.py`: both loaded once, their
    repetitions in random order, a U test on the means of repetitions. One launch, so it takes less time than
    the others; what it was dealt at its start no further repetition would undo.
    """
    from scipy.stats import mannwhitneyu

    launch = draw.choice(pool.launches)
    before, after = (np.mean(launch.turns_ns[name], axis=1) for name in pair)
    sure = mannwhitneyu(before, after).pvalue < LEVEL
    return Answer(float(np.median(before) / np.median(after)), bool(sure), launch.pair_seconds)


def rounds(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    costs = [sum(one[name].seconds for name in pair) for one in pool.rounds]
    count = max(EXACT_ROUNDS, int(equal_seconds(pool) / np.mean(costs)))
    drawn = draw.sample(range(len(pool.rounds)), min(count, len(pool.rounds)))
    sides = ([pool.rounds[number][name].iterations_ns for number in drawn] for name in pair)
    return _of_kit(compare_rounds(*sides, practical_threshold=0.0), sum(costs[number] for number in drawn))


def launches(count: int) -> Method:
    """So many launches, and then the verdict."""

    def method(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
        return _judged(draw.sample(pool.launches, min(count, len(pool.launches))), pair)

    return method


def adaptive(pool: Pool, pair: Pair, draw: random.Random) -> Answer:
    """Until the interval is narrow enough or the time is spent, as `profile` measures."""
    taken: list[Launch] = []
    spent = 0.0
    for launch in draw.sample(pool.launches, len(pool.launches)):
        if len(taken) >= CROWDED_LOOK and _crowded(taken, pair, pool.threads):
            return Answer(1.0, False, spent, refused=True)
        if len(taken) >= EXACT_ROUNDS and spent >= BUDGET_S:
            break
        if len(taken) >= FIRST_LOOK and precise_enough_launches(*_sides(taken, pair), resolution=CLOCK_NS):
            break
        taken.append(launch)
        spent += launch.pair_seconds
    return _judged(taken, pair)


def _crowded(taken: Sequence[Launch], pair: Pair, threads: int) -> bool:
    uses = ([launch.used_ns[name] for launch in taken] for name in pair)
    return any(crowded(sum(cpu for cpu, _ in use), sum(wait for _, wait in use), threads) for use in uses)


def _sides(taken: Sequence[Launch], pair: Pair) -> tuple[Launches, Launches]:
    baseline, candidate = ([launch.turns_ns[name] for launch in taken] for name in pair)
    return baseline, candidate


def _judged(taken: Sequence[Launch], pair: Pair) -> Answer:
    found = compare_launches(*_sides(taken, pair), practical_threshold=0.0, resolution=CLOCK_NS)
    return _of_kit(found, sum(launch.pair_seconds for launch in taken))


def _of_kit(found: Speedup, seconds: float) -> Answer:
    assert found.ratio is not None and found.low is not None and found.high is not None
    return Answer(found.ratio, not found.low <= 1 <= found.high, seconds)


ADAPTIVE = "lockstep, until within 0.5%"
METHODS: dict[str, Method] = {
    "naive: ratio of medians": naive,
    "naive, rank test": naive_tested,
    "hyperfine: mean and deviation": hyperfine,
    "hyperfine, Welch's test": hyperfine_tested,
    "google-benchmark: interleaved, U test": interleaved,
    "the kit's rounds": rounds,
    "lockstep, 6 launches": launches(6),
    "lockstep, 12 launches": launches(EQUAL_LAUNCHES),
    ADAPTIVE: adaptive,
}
