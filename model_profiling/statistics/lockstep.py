"""Speedups from programs that take turns: the launch is the independent unit, turns are blocks within it.

A launch starts every program once; then, in cycles, each takes one turn of a few inferences, in random order.
A disturbance hits both turns of a cycle, so it hardly changes their ratio. A process keeps its memory layout
for the whole launch, so a launch counts once, however many cycles it has.

Three choices, the best of those tried in `bench/lockstep_simulation.py`
(bench/figures/measuring.md):
- A turn's time is the edge of its fastest eighth (the fastest of up to eight inferences). Other work only
  adds time; where it hits most inferences, quartile, median and mean spread several times as far. The single
  fastest of a long turn would be an outlier.
- A launch's figure is the median over its cycles: half of them may be thrown far.
- The interval is the wider of Student's and the exact signed-rank interval over launches. Student's alone is
  wrong too often where launches fall into few groups; ranks alone are wrong more often than the wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.statistics import verdict
from model_profiling.statistics.measure import Turns, unequal_error
from model_profiling.statistics.verdict import EXACT_ROUNDS, Correction, Floats, Interval, Speedup

Launches = Sequence[Turns]
"""One experiment's launches, empty where failed. Turn `i` of launch `j` is the same cycle everywhere; it is
empty if none of its inferences counts."""

PRECISION = 0.005
"""Narrow enough to stop: plus or minus half a percent."""
PLANNED_LAUNCHES = 12
"""Launches a budget has room for when their number is open: stopping early can then save half of it."""
FIRST_LOOK = 7
"""Fewest launches before stopping early: six fall on one side by chance in 3% of all cases."""
SPENT = 0.63
"""Share of the allowed error an interval may use, so that stopping early stays below the whole
(`bench/lockstep_simulation.py`); about the least that six launches can reach."""

_USUAL_TURN = 8  # on a busy machine one inference in four runs undisturbed: of four, often none does
_MOST_CYCLES = 100  # beyond it the remaining noise is memory layout, which only a new launch changes
_ENOUGH_CYCLES = 15  # with half as many, a busy machine throws launches far
_STARTS = 4  # a launch's turns take at least this many times as long as starting it
_FEWEST_CYCLES = 5
_TURN_NS = 1e6  # waking a process and filling its caches takes tens of microseconds
_TURN_CLOCK_STEPS = 1000
_LONGEST_TURN = 64


class TurnPlan(NamedTuple):
    """Inferences per turn, including the first, which is not counted; and cycles per launch."""

    turn_length: int
    cycles: int


def compare_launches(
    baseline: Launches,
    candidate: Launches,
    *,
    confidence: float = verdict.CONFIDENCE,
    practical_threshold: float = verdict.PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
    disturbances: Sequence[float] = (),
    not_comparable: str | None = None,
) -> Speedup:
    """Compare experiments that took turns in the same launches; `rounds` of the result counts launches.

    A launch that failed on either side, or has less than half the usual cycles, is left out. The other
    parameters are those of `compare_rounds`.
    """
    if not_comparable:
        return verdict.no_answer(not_comparable, confidence)
    _check(baseline, candidate)
    cycles = paired_cycles(baseline, candidate)
    if not cycles:
        return verdict.no_answer("no launch completed a cycle of both experiments", confidence, 0, "launch")
    if any((launch == 0).any() for launch in cycles):
        return verdict.no_answer("shorter than the clock can measure", confidence, len(cycles), "launch")
    logs = _log_ratios(cycles)
    medians = _medians(baseline, candidate)
    found = verdict.measured(_centre(logs), medians, confidence, len(logs), "launch")
    if len(logs) < verdict.FEWEST_ROUNDS:
        return found
    p_value = verdict.student_p(logs)
    if verdict.can_reach(len(logs), verdict.level(confidence, SPENT)):
        p_value = max(p_value, verdict.signed_rank_p(logs, cap=len(logs)))
    assert found.ratio is not None
    interval = _interval(logs, confidence)
    stretch = verdict.clock_error(medians, resolution) + unequal_error(found.ratio, disturbances)
    return verdict.answer(found, interval, verdict.alpha_spent(p_value, SPENT), practical_threshold, stretch)


def precise_enough_launches(
    baseline: Launches,
    candidate: Launches,
    target_relative_half_width: float = PRECISION,
    minimum_launches: int = FIRST_LOOK,
    *,
    confidence: float = verdict.CONFIDENCE,
    resolution: float = 0.0,
) -> bool:
    """Whether measuring may stop after this launch, as `precise_enough`; only at spaced looks (7, 9, 12, 15,
    19, ... launches). The interval includes what the clock's `resolution` adds."""
    cycles = paired_cycles(baseline, candidate)
    looked = verdict.is_look(len(cycles), max(minimum_launches, FIRST_LOOK))
    if not looked or not verdict.can_reach(len(cycles), verdict.level(confidence, SPENT)):
        return False
    if any((launch == 0).any() for launch in cycles):
        return False
    stretch = verdict.clock_error(_medians(baseline, candidate), resolution) if resolution else 0.0
    low, high, _ = _interval(_log_ratios(cycles), confidence)
    return high - low + 2 * stretch <= 2 * math.log1p(target_relative_half_width)


def compare_many_launches(
    pairs: Mapping[str, tuple[Launches, Launches]],
    *,
    correction: Correction = "benjamini-hochberg",
    practical_threshold: float = verdict.PRACTICAL_THRESHOLD,
    resolution: float = 0.0,
) -> dict[str, Speedup]:
    """Compare every operator or category of traced turns, as `compare_many` does for rounds.

    It spends as little of the allowed error as one comparison does: at the very small p-values that many
    comparisons need, Student's test is too sure where launches fall into few groups.
    """
    compare = partial(compare_launches, practical_threshold=practical_threshold, resolution=resolution)

    def p_value(_: Speedup, before: Launches, after: Launches) -> float:
        return verdict.alpha_spent(verdict.student_p(_log_ratios(paired_cycles(before, after))), SPENT)

    return verdict.correct_each(pairs, compare, p_value, correction)


def growth(by_launch: Sequence[Sequence[float]], at: Sequence[float]) -> tuple[float, float, float] | None:
    """The slope of a line through each launch's times at the places `at`, and its 95% interval over launches;
    None with too few launches."""
    if len(by_launch) < verdict.FEWEST_ROUNDS or len(at) < 2:
        return None
    slopes = np.polyfit(np.asarray(at, np.float64), np.asarray(by_launch, np.float64).T, 1)[0]
    low, high = verdict.student_interval(slopes, verdict.level(verdict.CONFIDENCE, SPENT))
    return float(slopes.mean()), low, high


def plan_turns(
    latency_ns: float,
    clock_ns: float,
    experiments: int,
    budget_s: float,
    launches: int | None = None,
    *,
    start_s: float = 0.0,
) -> TurnPlan:
    """Choose turn length and cycles from the time of an inference (the mean of the experiments).

    A turn has eight inferences, seven of them counted, or as many (up to 64) as fill a millisecond and a
    thousand steps of the clock, so that waking a process is not most of it. A launch gets its share of the
    budget, less `start_s` for starting and warming up: up to 100 cycles with given `launches`; else (None) a
    twelfth of the budget and 15 cycles, or more while starting takes longer than a fifth of the launch.

    Where fewer than five cycles fit, turns shrink to four inferences, three, then one: a slow inference
    hardly depends on the caches it finds. There is at least one cycle, even beyond the launch's share.
    """
    if not (latency_ns > 0 and clock_ns >= 0 and budget_s > 0 and start_s >= 0):
        raise InputError("a latency, clock step or budget is not above zero", "measure one inference first")
    held = PLANNED_LAUNCHES if launches is None else launches
    if experiments < 1 or held < EXACT_ROUNDS:
        problem = f"{held} launches of {experiments} experiments cannot be planned"
        raise InputError(problem, f"plan at least {EXACT_ROUNDS} launches of one experiment")
    room = max(0.0, 1e9 * (budget_s / held - start_s)) / (experiments * latency_ns)
    filling = 1 + math.ceil(max(_TURN_NS, _TURN_CLOCK_STEPS * clock_ns) / latency_ns)
    usual = min(_LONGEST_TURN, max(_USUAL_TURN, filling))
    for length in (usual, 4, 3):
        if (cycles := int(room / length)) >= _FEWEST_CYCLES:
            paid = math.ceil(_STARTS * start_s * 1e9 / (experiments * length * latency_ns))
            enough = _MOST_CYCLES if launches is not None else max(_ENOUGH_CYCLES, paid)
            return TurnPlan(length, min(cycles, enough, _MOST_CYCLES))
    return TurnPlan(1, max(1, min(int(room), _MOST_CYCLES)))


def paired_cycles(baseline: Launches, candidate: Launches) -> list[Floats]:
    """For every launch that counts, one row per cycle that both finished: the two turns' typical times."""
    found = []
    for ours, theirs in zip(baseline, candidate, strict=False):
        # Turns are cut to the shorter one: the fastest of more is faster by chance.
        turns = ((our, their, min(len(our), len(their))) for our, their in zip(ours, theirs, strict=False))
        rows = [(_typical(our[:shared]), _typical(their[:shared])) for our, their, shared in turns if shared]
        if rows:
            found.append(np.array(rows, dtype=np.float64))
    usual = float(np.median([len(cycles) for cycles in found])) if found else 0.0
    return [cycles for cycles in found if len(cycles) >= usual / 2]


def _typical(inferences: Sequence[float]) -> float:
    """Edge of the fastest eighth: the fastest of up to eight, the second of sixteen."""
    return sorted(inferences)[(len(inferences) - 1) // 8]


def _log_ratios(cycles: Sequence[Floats]) -> Floats:
    """For each launch, the median over its cycles of the log of baseline over candidate."""
    return np.array([np.median(np.log(launch[:, 0] / launch[:, 1])) for launch in cycles], dtype=np.float64)


def _medians(baseline: Launches, candidate: Launches) -> tuple[float, float]:
    """Medians of all counted inferences: people compare these, so they are shown; the ratio decides."""
    ours, theirs = (
        np.concatenate([turn for launch in side for turn in launch]) for side in (baseline, candidate)
    )
    return float(np.median(ours)), float(np.median(theirs))


def _check(*sides: Launches) -> None:
    for side in sides:
        values = np.concatenate([[], *(turn for launch in side for turn in launch)])
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError("a latency is negative or not a number", "leave out launches that failed")


def _centre(logs: Floats) -> float:
    """Hodges-Lehmann estimate: the median of all pair means, robust and hardly noisier than the mean."""
    first, second = np.triu_indices(len(logs))
    return float(np.median((logs[first] + logs[second]) / 2))


def _interval(logs: Floats, confidence: float) -> Interval:
    sure = verdict.level(confidence, SPENT)
    if not verdict.can_reach(len(logs), sure):
        return verdict.few_interval(logs, confidence, "launch")
    rank_low, rank_high = verdict.signed_rank_interval(logs, sure, cap=len(logs))
    low, high = verdict.student_interval(logs, sure)
    return min(rank_low, low), max(rank_high, high), "signed-rank and Student over launches, the wider"
