"""Which process runs when: evidence first, then rounds in which every timing experiment takes its turn; and
how programs take turns in one launch.

A round starts one process of every series, in an order that depends only on the seed and the round's number,
so that a resumed run keeps its schedule. Processes that run side by side share any slow drift, so a round's
ratio is free of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from model_profiling.config.series import Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import FormatError, InputError
from model_profiling.program.pte import read_program
from model_profiling.program.records import GraphNode, Instruction
from model_profiling.runs.journal import Entry, Journal, Kind, RunStep
from model_profiling.runs.times import CLOCK_STEP_MS
from model_profiling.statistics.measure import EXACT_ROUNDS, PLANNED_LAUNCHES, TurnPlan, plan_turns
from model_profiling.targets.job import LockstepOutcome

TRACED_ROUNDS = 6
"""Rounds with a traced process beside each untraced one: as many as an exact test needs."""


@dataclass(frozen=True, slots=True)
class Order:
    """The steps of a run, in order."""

    evidence: tuple[RunStep, ...]
    rounds: tuple[tuple[RunStep, ...], ...]
    seed: int


def make_order(
    config: ProfileConfig, seed: int, *, latencies: bool, only: frozenset[str] = frozenset()
) -> Order:
    """Return the order of `config`; `only` keeps the named experiments, in an unchanged order. If times
    are not latencies (`latencies` false), each series runs once: there is nothing to repeat."""
    names = [experiment.name for experiment in config.experiments]
    if unknown := sorted(only - set(names)):
        raise InputError(f"there is no experiment '{unknown[0]}'", f"choose from {', '.join(names)}")
    # A user's own runner shows kernels only in its log, which slows it down: that needs mode xnntrace.
    evidence = [
        RunStep("evidence", series)
        for experiment in config.experiments
        if not latencies or experiment.runner is None or experiment.mode == "xnntrace"
        for series in experiment.series
    ]
    timed = [
        series
        for experiment in config.experiments
        if latencies and experiment.mode == "timing"
        for series in experiment.series
    ]

    def wanted(steps: list[RunStep]) -> tuple[RunStep, ...]:
        return tuple(step for step in steps if not only or step.series.experiment in only)

    rounds = []
    for number in range(config.schedule.most_rounds if timed else 0):
        steps = [RunStep("untraced", series, number) for series in timed]
        if number < TRACED_ROUNDS:
            steps += [RunStep("traced", series, number) for series in timed]
        random.Random(f"{seed}/{number}").shuffle(steps)
        rounds.append(wanted(steps))
    return Order(wanted(evidence), tuple(rounds) if any(rounds) else (), seed)


# How long emulation takes: it computes half precision in software, and a large image can take an hour.

_PER_SECOND = {"fp16": 22e6, "int8": 300e6}
_PER_SECOND_FP32 = 80e6
"""Operations per second of QEMU on an idle Neoverse-N1 or Xeon (toy CNN, MobileNetV3-small), within a factor
of 2."""
_START_S = 1.0


def emulated_seconds(
    program: Path, method: str | None = None, lengths: Mapping[int, int] | None = None
) -> float:
    """Estimate one inference of `method` (or of all) under emulation, at these `lengths` of its inputs; 0 if
    the program is unreadable, which running it reports."""
    try:
        methods = read_program(program, {method or "forward": lengths or {}}).methods
    except (FormatError, OSError):
        return 0.0
    steps: list[Instruction | GraphNode] = []
    for candidate in methods:
        if method in (None, candidate.name):
            steps += (step for step in candidate.instructions if step.kind == "operator")
            steps += (node for delegate in candidate.delegates for node in delegate.nodes)
    seconds = _START_S
    for step in steps:
        dtype = step.inputs[0].dtype if step.inputs else ""
        seconds += step.flops / _PER_SECOND.get("int8" if "int8" in dtype else dtype, _PER_SECOND_FP32)
    return seconds


# Programs that take turns: the job of one launch, and each experiment's share of its result.

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
    shortest_ns: float
    """CPU time of one inference of the shortest program."""

    @classmethod
    def of(cls, outcome: LockstepOutcome, seconds: float) -> Pace:
        taken = [result.iterations_ns for result in outcome.results]
        turns_s = sum(map(sum, taken)) / 1e9
        cpu = [result.cpu_ns or result.iterations_ns for result in outcome.results]
        return cls(
            sum(median(times[1:] or times) for times in taken),
            max(0.0, seconds - turns_s),
            min(median(times[1:] or times) for times in cpu),
        )


def plan(pace: Pace, programs: int, budget_s: float, most: int | None, traced_turns: int | None) -> TurnPlan:
    """Return the turns and cycles of each launch. `most` is the requested number of launches, `traced_turns`
    the most turns wanted with the event tracer, None without it."""
    launches = None if most is None else max(EXACT_ROUNDS, most)
    share = 1 - _TRACED_SHARE
    if traced_turns is not None:
        launches, share = EXACT_ROUNDS, _TRACED_SHARE
    turns = plan_turns(
        pace.inferences_ns / programs,
        1e6 * CLOCK_STEP_MS,
        programs,
        share * budget_s,
        launches,
        start_s=min(pace.start_s, share * budget_s / (launches or PLANNED_LAUNCHES) / 2),
        shortest_ns=pace.shortest_ns,
    )
    if traced_turns is None:
        return turns
    # Every run of a dump is read and kept, so a few are enough.
    return TurnPlan(min(turns.turn_length, _TRACED_TURN), min(turns.cycles, traced_turns))


def plan_kept(journal: Journal, series: Series, kind: Kind) -> TurnPlan | None:
    """Return the layout of earlier launches of this kind, so that a continued run repeats it."""
    turns = next((entry.turns_ns for entry in journal.ended_well(kind, series) if entry.turns_ns), None)
    return TurnPlan(len(turns[0]), len(turns)) if turns else None


def with_turns(entry: Entry, outcome: LockstepOutcome, child: int, launch: str) -> Entry:
    turns = outcome.turns
    own = [number for number, taken in enumerate(turns.child) if taken == child]
    return replace(
        entry,
        iterations_ns=(),
        cpu_ns=(),
        preemptions=(),
        launch=launch,
        turns_ns=tuple(turns.iterations_ns[number] for number in own),
        turns_cpu_ns=tuple(turns.cpu_ns[number] for number in own),
        turns_preemptions=tuple(turns.preemptions[number] for number in own),
        turns_started_ns=tuple(turns.started_ns[number] for number in own),
        turns_cpu=tuple(turns.cpu[number] for number in own),
        use=outcome.machine.children[child],
        machine_before=outcome.machine.before,
        machine_after=outcome.machine.after,
    )
