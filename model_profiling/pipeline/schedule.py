"""Which process runs when: evidence first, then rounds in which every timing experiment takes its turn.

A round starts one process of every series, in an order that depends only on the seed and the round's number,
so that a resumed run keeps its schedule. Processes that run side by side share any slow drift, so a round's
ratio is free of it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config.reading import Experiment, ProfileConfig, series_of
from model_profiling.core.errors import FormatError, InputError
from model_profiling.program import GraphNode, Instruction, read_program
from model_profiling.run.journal import Step
from model_profiling.run.series import Series

TRACED_ROUNDS = 6
"""Rounds with a traced process beside each untraced one: as many as an exact test needs."""


@dataclass(frozen=True, slots=True)
class Schedule:
    evidence: tuple[Step, ...]
    rounds: tuple[tuple[Step, ...], ...]
    seed: int


def make_schedule(
    config: ProfileConfig, seed: int, *, latencies: bool, only: frozenset[str] = frozenset()
) -> Schedule:
    """Return the schedule of `config`; `only` keeps the named experiments, in an unchanged order. If times
    are not latencies (`latencies` false), each series runs once: there is nothing to repeat."""
    evidence = tuple(
        Step("evidence", series)
        for experiment in config.experiments
        if not latencies or gathers_evidence(experiment)
        for series in series_of(experiment)
    )
    timed = [
        series
        for experiment in config.experiments
        if latencies and experiment.mode == "timing"
        for series in series_of(experiment)
    ]
    count = config.schedule.most_rounds if timed else 0
    rounds = tuple(_round(timed, number, seed) for number in range(count))
    schedule = Schedule(evidence, rounds, seed)
    return _restricted(schedule, _known(config, only)) if only else schedule


def gathers_evidence(experiment: Experiment) -> bool:
    """Whether an experiment has a separate process for kernels and outputs. A user's own runner shows kernels
    only in its log, which slows it down: that needs mode xnntrace."""
    return experiment.runner is None or experiment.mode == "xnntrace"


def experiment_of(config: ProfileConfig, series: Series) -> Experiment:
    return config.experiment(series.experiment)


def _round(timed: list[Series], number: int, seed: int) -> tuple[Step, ...]:
    steps = [Step("untraced", series, number) for series in timed]
    if number < TRACED_ROUNDS:
        steps += [Step("traced", series, number) for series in timed]
    random.Random(f"{seed}/{number}").shuffle(steps)
    return tuple(steps)


def _known(config: ProfileConfig, only: frozenset[str]) -> frozenset[str]:
    names = [experiment.name for experiment in config.experiments]
    if unknown := sorted(only - set(names)):
        raise InputError(f"there is no experiment '{unknown[0]}'", f"choose from {', '.join(names)}")
    return only


def _restricted(schedule: Schedule, only: frozenset[str]) -> Schedule:
    def kept(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(step for step in steps if step.series.experiment in only)

    rounds = tuple(kept(steps) for steps in schedule.rounds)
    return Schedule(kept(schedule.evidence), rounds if any(rounds) else (), schedule.seed)


# How long emulation takes: it computes half precision in software, and a large image can take an hour.

_PER_SECOND = {"fp16": 30e6, "int8": 400e6}
_PER_SECOND_FP32 = 110e6
"""Operations per second of QEMU on a Neoverse-N1 (toy CNN, MobileNetV3-small), within a factor of 2."""


def emulated_seconds(program: Path) -> float:
    """Estimate one inference under emulation; 0 if the program is unreadable, which running it reports."""
    try:
        methods = read_program(program).methods
    except (FormatError, OSError):
        return 0.0
    steps: list[Instruction | GraphNode] = []
    for method in methods:
        steps += (step for step in method.instructions if step.kind == "operator")
        steps += (node for delegate in method.delegates for node in delegate.nodes)
    return sum(step.flops / _per_second(step) for step in steps)


def _per_second(step: Instruction | GraphNode) -> float:
    dtype = step.inputs[0].dtype if step.inputs else ""
    return _PER_SECOND["int8"] if "int8" in dtype else _PER_SECOND.get(dtype, _PER_SECOND_FP32)
