"""Launches of two programs that took turns, each with all that the runner tells of every inference."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from model_profiling.core.files import write_text
from model_profiling.runs.journal import other_cores
from model_profiling.runs.times import CLOCK_STEP_MS, Timed
from model_profiling.statistics.measure import Inferences, Rule, TurnPlan, disturbance, plan_turns, rule_for
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import LockstepJob, LockstepOutcome

BUDGET_S = 22.5
"""What `profile` leaves of its 30 seconds for latencies; the rest is for the event tracer."""
CLOCK_NS = 1e6 * CLOCK_STEP_MS
_WARMUP = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """`seconds` is all that it took; `sides` are the inferences of its programs."""

    seconds: float
    sides: tuple[Inferences, ...]


def sides_of(outcome: LockstepOutcome) -> tuple[Inferences, ...]:
    turns = outcome.turns
    found = []
    for child in range(len(outcome.results)):
        own = [place for place, taken in enumerate(turns.child) if taken == child]
        columns = turns.iterations_ns, turns.cpu_ns, turns.preemptions
        wall, cpu, preemptions = ([column[place] for place in own] for column in columns)
        others = other_cores(outcome.machine.before, outcome.machine.after)
        found.append(Inferences(wall, cpu, preemptions, other_cores=others))
    return tuple(found)


def take(target: HostTarget, jobs: Sequence[Job], plan: TurnPlan, seed: int, scratch: Path) -> Launch:
    job = LockstepJob(tuple(jobs), cycles=plan.cycles, turn_length=plan.turn_length, order_seed=seed)
    began = time.monotonic()
    sides = sides_of(target.execute_lockstep(job, scratch, "launch"))
    return Launch(time.monotonic() - began, sides)


def plan_for(target: HostTarget, jobs: Sequence[Job], scratch: Path) -> TurnPlan:
    """The kit's own plan, from one cycle that is not kept."""
    trial = take(target, jobs, TurnPlan(4, 1), 0, scratch)
    turns = [side.wall[0] for side in trial.sides]
    start_s = trial.seconds - sum(map(sum, turns)) / 1e9
    latency = float(np.mean([np.median(turn[1:]) for turn in turns]))
    return plan_turns(
        latency,
        CLOCK_NS,
        len(jobs),
        BUDGET_S,
        start_s=min(max(0.0, start_s), BUDGET_S / 24),
        shortest_ns=min(float(np.median(side.cpu[0][1:])) for side in trial.sides),
    )


def measure(
    target: HostTarget, programs: Sequence[Path], scratch: Path, *, threads: int, seconds: float, least: int
) -> list[Launch]:
    """Launches for about so many seconds, `least` at the least."""
    jobs = [Job(program, threads=threads, warmup=_WARMUP) for program in programs]
    plan, draw = plan_for(target, jobs, scratch), random.Random(str(programs))
    began, taken = time.monotonic(), []
    while len(taken) < least or time.monotonic() - began < seconds:
        taken.append(take(target, jobs, plan, draw.getrandbits(32), scratch))
    return taken


def timed(launches: Sequence[Launch], side: int, threads: int, rule: Rule | None = None) -> Timed:
    """One side of some launches as the kit holds it: measured by the rule for both sides."""
    inferences = [launch.sides[side] for launch in launches]
    rule = rule or rule_for([each for launch in launches for each in launch.sides], threads)
    counted = {str(number): each.counted(rule.measure) for number, each in enumerate(inferences)}
    return Timed(
        rounds=[[ms for turn in turns for ms in turn] for turns in counted.values()],
        launches=counted,
        rule=rule,
        disturbance=disturbance(inferences),
        again=partial(timed, launches, side, threads),
    )


def keep(path: Path, pools: dict[str, list[Launch]]) -> None:
    content = {
        name: [
            [
                launch.seconds,
                [[side.wall, side.cpu, side.preemptions, side.other_cores] for side in launch.sides],
            ]
            for launch in pool
        ]
        for name, pool in pools.items()
    }
    write_text(path, json.dumps(content) + "\n")


def read(path: Path) -> dict[str, list[Launch]]:
    content = json.loads(path.read_text())
    return {
        name: [
            Launch(seconds, tuple(Inferences(*columns, other_cores=others) for *columns, others in sides))
            for seconds, sides in pool
        ]
        for name, pool in content.items()
    }
