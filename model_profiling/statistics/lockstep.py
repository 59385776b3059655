"""How programs take turns in a launch: the length of a turn, and how many cycles there are."""

from __future__ import annotations

import math
from typing import NamedTuple

from model_profiling.core.errors import InputError
from model_profiling.statistics.speedup import EXACT_ROUNDS

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
    least = 1 if shortest_ns >= _SLOW_NS else 3
    return TurnPlan(least, max(1, min(int(room / least), _MOST_CYCLES)))
