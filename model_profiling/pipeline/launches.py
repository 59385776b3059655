"""Programs that take turns: what one launch asks for, and what of it belongs to each experiment."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from model_profiling.run.comparability import CLOCK_STEP_MS
from model_profiling.run.journal import Entry, Journal, Kind
from model_profiling.run.series import Series
from model_profiling.statistics.lockstep import PLANNED_LAUNCHES, TurnPlan, plan_turns
from model_profiling.statistics.verdict import EXACT_ROUNDS
from model_profiling.targets.protocol import Job, LockstepJob, LockstepOutcome

_TRACED_SHARE = 0.25
"""Of the time there is, for what needs the event tracer."""
_TRACED_TURN = 4
TRIAL = TurnPlan(turn_length=4, cycles=1)
"""The launch that is not kept: it tells how long a turn and a start take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long one inference of every program together, and starting them, takes."""

    inferences_ns: float
    start_s: float

    @classmethod
    def of(cls, outcome: LockstepOutcome, seconds: float) -> Pace:
        """As a launch that took `seconds` showed it."""
        taken = [result.iterations_ns for result in outcome.results]
        turns_s = sum(map(sum, taken)) / 1e9
        return cls(sum(median(times[1:] or times) for times in taken), max(0.0, seconds - turns_s))


def plan(pace: Pace, programs: int, budget_s: float, most: int | None, traced_turns: int | None) -> TurnPlan:
    """Turns and cycles of each launch of a run. `most` is how many launches were asked for; `traced_turns`
    is the most that are wanted with the event tracer on, None without it."""
    launches = None if most is None else max(EXACT_ROUNDS, most)
    share = 1 - _TRACED_SHARE
    if traced_turns is not None:
        launches, share = EXACT_ROUNDS, _TRACED_SHARE
    found = plan_turns(
        pace.inferences_ns / programs,
        1e6 * CLOCK_STEP_MS,
        programs,
        share * budget_s,
        launches,
        start_s=min(pace.start_s, share * budget_s / (launches or PLANNED_LAUNCHES) / 2),
    )
    if traced_turns is None:
        return found
    # Every run of a dump is read and kept: a few are enough.
    return TurnPlan(min(found.turn_length, _TRACED_TURN), min(found.cycles, traced_turns))


def plan_kept(journal: Journal, series: Series, kind: Kind) -> TurnPlan | None:
    """How launches of this kind were laid out before, so that a continued run goes on with launches alike."""
    turns = next((entry.turns_ns for entry in journal.ended_well(kind, series) if entry.turns_ns), None)
    return TurnPlan(len(turns[0]), len(turns)) if turns else None


def launch_of(jobs: Sequence[Job], turns: TurnPlan, seed: str, timeout_s: float) -> LockstepJob:
    return LockstepJob(
        jobs=tuple(jobs),
        cycles=turns.cycles,
        turn_length=turns.turn_length,
        order_seed=random.Random(seed).getrandbits(32),
        timeout_s=timeout_s,
        cpu_affinity=jobs[0].cpu_affinity,
    )


def launch_name() -> str:
    return secrets.token_hex(8)


def with_turns(entry: Entry, outcome: LockstepOutcome, child: int, launch: str) -> Entry:
    """`entry` with the turns that one child of the launch had."""
    turns = outcome.turns
    own = [number for number, taken in enumerate(turns.child) if taken == child]
    return replace(
        entry,
        iterations_ns=(),
        launch=launch,
        turns_ns=tuple(turns.iterations_ns[number] for number in own),
        turns_started_ns=tuple(turns.started_ns[number] for number in own),
        turns_cpu=tuple(turns.cpu[number] for number in own),
        use=outcome.machine.children[child],
        machine_before=outcome.machine.before,
        machine_after=outcome.machine.after,
    )
