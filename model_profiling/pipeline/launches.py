"""Programs that take turns: the job of one launch, and each experiment's share of its result."""

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
"""Share of the time budget for runs with the event tracer."""
_TRACED_TURN = 4
TRIAL = TurnPlan(turn_length=4, cycles=1)
"""A launch that is not kept: it shows how long a turn and a start take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The time of one inference of every program together, and of starting them."""

    inferences_ns: float
    start_s: float

    @classmethod
    def of(cls, outcome: LockstepOutcome, seconds: float) -> Pace:
        taken = [result.iterations_ns for result in outcome.results]
        turns_s = sum(map(sum, taken)) / 1e9
        return cls(sum(median(times[1:] or times) for times in taken), max(0.0, seconds - turns_s))


def plan(pace: Pace, programs: int, budget_s: float, most: int | None, traced_turns: int | None) -> TurnPlan:
    """Return the turns and cycles of each launch. `most` is the requested number of launches, `traced_turns`
    the most turns wanted with the event tracer, None without it."""
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
    # Every run of a dump is read and kept, so a few are enough.
    return TurnPlan(min(found.turn_length, _TRACED_TURN), min(found.cycles, traced_turns))


def plan_kept(journal: Journal, series: Series, kind: Kind) -> TurnPlan | None:
    """Return the layout of earlier launches of this kind, so that a continued run repeats it."""
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
