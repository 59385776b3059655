"""What was measured under each condition: launches whose programs took turns, and processes of their own.

Every trial of every method draws from these, so each condition is measured once. Five programs share a launch
(and a round of processes), because time is what a campaign has least of; some launches of two show whether
that changes the answer.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.core.files import write_text
from model_profiling.core.records import read_record, record_json
from model_profiling.run.comparability import CLOCK_STEP_MS
from model_profiling.statistics.lockstep import TurnPlan, plan_turns
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget
from model_profiling.targets.protocol import LockstepJob
from quality.neighbours import Neighbours, working
from quality.programs import EFFECTS, LAYERS

BUDGET_S = 22.5
"""What `profile` leaves of its 30 seconds for latencies; the rest is for the event tracer."""
CLOCK_NS = 1e6 * CLOCK_STEP_MS
CHECKED = EFFECTS[0.02]
"""The pair that is also measured in launches of its own."""
_WARMUP = 3
_RUNS = 15
_ROUNDS_SHARE = 0.30
_PAIRS_SHARE = 0.12
_LEAST = 6
_FIX = "measure again with --keep"


@dataclass(frozen=True, slots=True)
class Condition:
    """What the machine does meanwhile; `weight` is its share of the campaign's time."""

    title: str
    neighbours: Neighbours
    threads: int
    weight: float


CONDITIONS = {
    "quiet": Condition("quiet", Neighbours(), 1, 4),
    "one": Condition("one busy neighbour", Neighbours(1), 1, 7),
    "two": Condition("two busy neighbours", Neighbours(2), 1, 9),
    "changing": Condition("a changing load", Neighbours(2, changing=True), 1, 7),
    "threads": Condition("two threads, quiet", Neighbours(), 2, 4),
    "threads-one": Condition("two threads, one neighbour", Neighbours(1), 2, 7),
    "threads-two": Condition("two threads, two neighbours", Neighbours(2), 2, 4),
}


@dataclass(frozen=True, slots=True)
class Launch:
    """Programs that took turns: of each, every inference's nanoseconds by turn. `seconds` is all it took."""

    seconds: float
    turns_ns: dict[str, tuple[tuple[int, ...], ...]]
    used_ns: dict[str, tuple[int, int]]
    """Of each program's threads: CPU time, and how long they waited for a core."""

    @property
    def pair_seconds(self) -> float:
        """What a launch of two of its programs would have taken."""
        return self.seconds * 2 / len(self.turns_ns)


@dataclass(frozen=True, slots=True)
class Process:
    """A process of its own, from `began_s` on; `seconds` is all it took, the inferences' times are in it."""

    began_s: float
    seconds: float
    iterations_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """Of one condition. `rounds` hold a process of each program, in the order of time."""

    threads: int
    neighbours: int
    turn_length: int
    cycles: int
    launches: tuple[Launch, ...]
    pairs: tuple[Launch, ...]
    rounds: tuple[dict[str, Process], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """All that was measured on one machine."""

    schema_version: Literal[1] = 1
    machine: str
    seed: int
    pools: dict[str, Pool]


def keep(path: Path, campaign: Campaign) -> None:
    """Whole or not at all, and without the line for every number that indenting would make."""
    write_text(path, json.dumps(record_json(campaign)) + "\n")


def read(paths: Sequence[Path]) -> Campaign:
    """One campaign out of what was kept, maybe condition by condition."""
    first, *others = (read_record(Campaign, path, _FIX) for path in paths)
    pools = dict(first.pools)
    for path, other in zip(paths[1:], others, strict=True):
        if twice := sorted(pools.keys() & other.pools.keys()):
            raise InputError(
                f"{path}: {twice[0]} was measured in an earlier file too", "leave one of them out"
            )
        pools |= other.pools
    for name, pool in pools.items():
        if name not in CONDITIONS or min(map(len, (pool.launches, pool.pairs, pool.rounds))) < _LEAST:
            raise InputError(f"{paths[0]}: {name} is no condition that was measured to its end", _FIX)
    return Campaign(machine=first.machine, seed=first.seed, pools=pools)


def measure(
    condition: Condition,
    programs: dict[str, Path],
    *,
    seconds: float,
    seed: int,
    scratch: Path,
    told: Callable[[str], None],
) -> Pool:
    """Fill a pool for about so many seconds."""
    jobs = {name: Job(programs[name], threads=condition.threads, warmup=_WARMUP) for name in LAYERS}
    bench = _Bench(jobs, random.Random(f"{seed} {condition.title}"), scratch)
    with working(condition.neighbours, seed):
        plan = bench.plan()
        rounds = tuple(bench.round() for _ in _until(_ROUNDS_SHARE * seconds, told, "rounds"))
        pairs = tuple(
            bench.launch(CHECKED, plan) for _ in _until(_PAIRS_SHARE * seconds, told, "launches of two")
        )
        left = (1 - _ROUNDS_SHARE - _PAIRS_SHARE) * seconds
        launches = tuple(bench.launch(list(jobs), plan) for _ in _until(left, told, "launches of five"))
    return Pool(
        threads=condition.threads,
        neighbours=condition.neighbours.count,
        turn_length=plan.turn_length,
        cycles=plan.cycles,
        launches=launches,
        pairs=pairs,
        rounds=rounds,
    )


def _until(seconds: float, told: Callable[[str], None], what: str) -> Iterator[int]:
    began, count = time.monotonic(), 0
    while count < _LEAST or time.monotonic() - began < seconds:
        yield count
        count += 1
    told(f"{count} {what} in {time.monotonic() - began:.0f} s")


class _Bench:
    """Starts processes and launches of the programs of `jobs`."""

    def __init__(self, jobs: dict[str, Job], draw: random.Random, scratch: Path) -> None:
        self.jobs, self.draw, self.scratch = jobs, draw, scratch
        self.target = HostTarget()
        self.target.prepare()

    def plan(self) -> TurnPlan:
        """The kit's own plan for two programs, from one cycle that is not kept."""
        trial = self.launch(list(self.jobs), TurnPlan(4, 1))
        turns = [one[0] for one in trial.turns_ns.values()]
        latency = float(np.median([np.median(turn[1:]) for turn in turns]))
        start_s = (trial.seconds - sum(map(sum, turns)) / 1e9) * 2 / len(turns)
        return plan_turns(latency, CLOCK_NS, 2, BUDGET_S, start_s=max(0.0, start_s))

    def round(self) -> dict[str, Process]:
        taken = {}
        for name in self.draw.sample(list(self.jobs), len(self.jobs)):
            began = time.monotonic()
            outcome = self.target.execute(replace(self.jobs[name], runs=_RUNS), self.scratch, "process")
            taken[name] = Process(began, time.monotonic() - began, outcome.result.iterations_ns)
        return taken

    def launch(self, names: Sequence[str], plan: TurnPlan) -> Launch:
        asked = LockstepJob(
            tuple(self.jobs[name] for name in names),
            cycles=plan.cycles,
            turn_length=plan.turn_length,
            order_seed=self.draw.getrandbits(32),
        )
        began = time.monotonic()
        outcome = self.target.execute_lockstep(asked, self.scratch, "launch")
        turns, uses = outcome.turns, outcome.machine.children
        seconds = time.monotonic() - began
        own: dict[str, list[tuple[int, ...]]] = {name: [] for name in names}
        for child, times in zip(turns.child, turns.iterations_ns, strict=True):
            own[names[child]].append(times)
        used = {name: (use.cpu_ns, use.waited_ns or 0) for name, use in zip(names, uses, strict=True)}
        return Launch(seconds, {name: tuple(taken) for name, taken in own.items()}, used)
