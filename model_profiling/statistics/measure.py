"""What counts as the time of an inference on a machine that other programs use, too; and how programs take
turns in a launch. The one rule:

An inference that nobody interrupted counts with its wall time. Where a launch has fewer than five of these,
the CPU time stands for it if there is one thread. With several threads CPU time says little (a thread pool's
threads wait by spinning), so the wall time of all inferences is kept, and nothing is compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from model_profiling.core.errors import InputError

Measure = Literal["wall time", "cpu time", "wall time, interrupted", "wall time, unchecked"]
"""`unchecked`: the runner does not say whether an inference was interrupted."""
MARKS: dict[Measure, str] = {
    "cpu time": " of CPU time",
    "wall time, interrupted": ", including time that other programs took",
}
"""What follows a time that is not simply wall time, wherever it is shown."""
Turns = Sequence[Sequence[float]]
"""One experiment's turns in one launch, by cycle: the time of every inference that counts, in order."""
Rounds = Sequence[Sequence[float]]
"""Iteration latencies of each round; empty for a round that failed."""

ENOUGH = 5
_PREEMPTION_NS = 250_000
"""What an interruption adds to the CPU time, at most: the caches that the other program used are filled again
(10 to 220 us on a Neoverse-N1 with 1 MB of second-level cache, bench/figures/measuring.md)."""
_SHARED_CACHES = 0.02
"""The share that busy cores add to the time of a program that nobody interrupts, at most: they use the same
caches and memory (1.6% on that machine)."""


@dataclass(frozen=True, slots=True)
class Inferences:
    """Every inference of one process, by turn, in nanoseconds. A process that ran alone has one turn, whose
    first inference counts; of other turns it does not count, unless a turn has only one."""

    wall: Sequence[Sequence[int]]
    cpu: Sequence[Sequence[int]] = ()
    """CPU time of the calling thread; empty if the runner does not say."""
    preemptions: Sequence[Sequence[int]] = ()
    speeds: Sequence[int | None] = ()
    """The capacity of the core that each turn ended on; None if unknown."""
    alone: bool = False
    other_cores: float = 0.0
    """That other programs kept busy during the launch, on average."""

    @property
    def first(self) -> int:
        """The first inference of a turn that counts."""
        return 0 if self.alone or max(map(len, self.wall), default=0) == 1 else 1

    def counted(self, measure: Measure, speed: int | None = None) -> list[list[float]]:
        """The times that count, in milliseconds. Turns on cores of another `speed` are empty: their cycles do
        not count."""
        turns = []
        for number, turn in enumerate(self.cpu if measure == "cpu time" else self.wall):
            kept = list(turn[self.first :])
            if measure == "wall time":
                quiet = self.quiet(number)
                kept = [turn[place] for place in range(self.first, len(turn)) if quiet[place]]
            same = not self.speeds or speed is None or self.speeds[number] == speed
            turns.append([ns / 1e6 for ns in kept] if same else [])
        return turns

    def quiet(self, turn: int) -> list[bool]:
        """Which inferences of a turn nobody disturbed. After an interrupted one, the next finds other
        programs' data in the caches, so it was disturbed, too."""
        interrupted = self.preemptions[turn]
        return [not any(interrupted[max(0, place - 1) : place + 1]) for place in range(len(interrupted))]

    @property
    def undisturbed(self) -> bool:
        """Whether enough inferences, or all of a few, were not interrupted."""
        whole = sum(len(turn) - self.first for turn in self.wall)
        return sum(map(len, self.counted("wall time"))) >= min(ENOUGH, whole)


@dataclass(frozen=True, slots=True)
class Rule:
    """How the launches of experiments that are compared with each other are measured: all by the same
    measure, on cores of one speed."""

    measure: Measure = "wall time, unchecked"
    speed: int | None = None
    """The capacity of the cores that count; None if all do."""

    def together(self, other: Rule) -> Rule:
        """The rule for two experiments whose own rules are these: the weaker measure."""
        order: tuple[Measure, ...] = (
            "wall time", "cpu time", "wall time, interrupted", "wall time, unchecked",
        )  # fmt: skip
        return max(self, other, key=lambda rule: order.index(rule.measure))


def rule_for(launches: Sequence[Inferences], threads: int) -> Rule:
    """Decide the measure from everything that was measured with this many threads."""
    speeds = Counter(speed for launch in launches for speed in launch.speeds)
    speed = speeds.most_common(1)[0][0] if speeds else None
    if not launches or not all(launch.cpu for launch in launches):
        return Rule(speed=speed)
    quiet = sum(launch.undisturbed for launch in launches)
    if quiet == len(launches) or (threads > 1 and 2 * quiet >= len(launches)):
        return Rule("wall time", speed)
    return Rule("cpu time" if threads == 1 else "wall time, interrupted", speed)


def interrupted_share(launches: Iterable[Inferences]) -> float:
    """The share of the time that others had the core of a single thread."""
    every = [(launch.wall, launch.cpu) for launch in launches if launch.cpu]
    wall, cpu = (sum(map(sum, (turn for pair in every for turn in pair[column]))) for column in (0, 1))
    return max(0.0, 1 - cpu / wall) if wall else 0.0


def disturbance(launches: Iterable[Inferences]) -> float:
    """The most by which other programs can have raised the time of these inferences, as a share: by
    interrupting them, and on other cores."""
    cpu = times = 0
    other_cores = 0.0
    for launch in launches:
        other_cores = max(other_cores, launch.other_cores)
        cpu += sum(sum(turn[launch.first :]) for turn in launch.cpu)
        times += sum(sum(turn[launch.first :]) for turn in launch.preemptions)
    return _SHARED_CACHES * min(1.0, other_cores) + (_PREEMPTION_NS * times / cpu if cpu else 0.0)


def unequal_error(ratio: float, disturbances: Iterable[float]) -> float:
    """What other programs can add to the log of a ratio. They raise both times; programs that take about as
    long suffer alike, so that the ratio stays right; one that takes twice as long may suffer all of it
    alone."""
    return max(disturbances, default=0.0) * min(1.0, abs(math.log2(ratio)))


# The turns of a launch: how long one is, and how many cycles there are.

EXACT_ROUNDS = 6
"""From six rounds or launches on, an exact rank test can reach 5%."""
PLANNED_LAUNCHES = 12
"""Launches a budget has room for when their number is open: stopping early can then save half of it."""

_USUAL_TURN = 8  # on a busy machine one inference in four runs undisturbed: of four, often none does
_MOST_CYCLES = 100  # beyond it the remaining noise is memory layout, which only a new launch changes
_ENOUGH_CYCLES = 15  # with half as many, a busy machine throws launches far
_STARTS = 4  # a launch's turns take at least this many times as long as starting it
_FEWEST_CYCLES = 5
_TURN_NS = 1e6  # waking a process and filling its caches takes tens of microseconds
_TURN_CLOCK_STEPS = 1000
_LONGEST_TURN = 64
_SLOW_NS = 20e6


class TurnPlan(NamedTuple):
    """Inferences per turn, including the first, which is not counted; and cycles per launch."""

    turn_length: int
    cycles: int


def plan_turns(
    latency_ns: float,
    clock_ns: float,
    experiments: int,
    budget_s: float,
    launches: int | None = None,
    *,
    start_s: float = 0.0,
    shortest_ns: float = math.inf,
) -> TurnPlan:
    """Choose turn length and cycles from the time of an inference (the mean of the experiments).

    A turn has eight inferences, seven of them counted, or as many (up to 64) as fill a millisecond and a
    thousand steps of the clock, so that waking a process is not most of it. A launch gets its share of the
    budget, less `start_s` for starting and warming up: up to 100 cycles with given `launches`; else (None) a
    twelfth of the budget and 15 cycles, or more while starting takes longer than a fifth of the launch.

    Where fewer than five cycles fit, turns shrink to four inferences, three, then one. But one needs a slow
    inference, which hardly depends on the caches it finds: with less CPU time in the shortest program
    (`shortest_ns`) than 20 ms it stays at three. There is at least one cycle, even beyond the launch's share.
    """
    if not (latency_ns > 0 and clock_ns >= 0 and budget_s > 0 and start_s >= 0):
        raise InputError("a latency, clock step or budget is not above zero", "measure one inference first")
    share_s = budget_s / (PLANNED_LAUNCHES if launches is None else launches)
    room = max(0.0, 1e9 * (share_s - start_s)) / (experiments * latency_ns)
    filling = 1 + math.ceil(max(_TURN_NS, _TURN_CLOCK_STEPS * clock_ns) / latency_ns)
    usual = min(_LONGEST_TURN, max(_USUAL_TURN, filling))
    for length in (usual, 4, 3):
        if (cycles := int(room / length)) >= _FEWEST_CYCLES:
            paid = math.ceil(_STARTS * start_s * 1e9 / (experiments * length * latency_ns))
            enough = _MOST_CYCLES if launches is not None else max(_ENOUGH_CYCLES, paid)
            return TurnPlan(length, min(cycles, enough, _MOST_CYCLES))
    least = 1 if shortest_ns >= _SLOW_NS else 3
    return TurnPlan(least, max(1, min(int(room / least), _MOST_CYCLES)))


# Description of a set of latencies: centre and spread.

Floats = npt.NDArray[np.float64]

_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Statistics of one set of latencies, in the unit they came in (the kit uses milliseconds)."""

    count: int
    median: float
    mean: float
    minimum: float
    maximum: float
    p5: float
    p10: float
    p90: float
    p95: float
    p99: float
    mad: float
    """Median absolute deviation from the median, not scaled."""
    std: float
    cv: float
    robust_cv: float
    """CV computed from the MAD: the spread without the slowest."""


def summarize(latencies: Sequence[float] | Floats) -> LatencySummary:
    """Describe `latencies`, given in the order they were measured."""
    values = np.asarray(latencies, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError("there is no latency, or one is negative or not a number", "leave out what failed")
    median = float(np.median(values))
    mad = float(np.median(np.abs(values - median)))
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    edges = (5, 10, 90, 95, 99)
    percentiles = zip(edges, np.percentile(values, edges).tolist(), strict=True)
    return LatencySummary(
        count=len(values),
        median=median,
        mean=mean,
        minimum=float(values.min()),
        maximum=float(values.max()),
        **{f"p{edge}": value for edge, value in percentiles},
        mad=mad,
        std=std,
        cv=std / mean if mean else 0.0,
        robust_cv=_MAD_TO_SIGMA * mad / median if median else 0.0,
    )
