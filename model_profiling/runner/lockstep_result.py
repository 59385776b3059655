"""What the runner says about programs that took turns, as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from model_profiling.errors import FormatError, InputError, RunError
from model_profiling.json_record import parse_record, read_json_object
from model_profiling.runner.result import RunnerResult, parse_result
from model_profiling.runner.turn_order import shuffles

_FIX = "run it again"


@dataclass(frozen=True, slots=True)
class Turns:
    """Every turn of a launch, in the order they were taken; one entry of each tuple is one turn.

    `started_ns` is a monotonic clock, the same for all children. `idle_wait_ns` is how long the child's
    threads kept spinning after the turn, which the next turn waited for. `cpu` is the one that the turn's
    first thread was on at its end; None where the system does not say.
    """

    child: tuple[int, ...]
    started_ns: tuple[int, ...]
    iterations_ns: tuple[tuple[int, ...], ...]
    idle_wait_ns: tuple[int, ...]
    cpu: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """How a launch went. `idle_wait_exceeded` counts the turns after which a child's threads were still busy
    when the runner's patience ended."""

    turn_length: int
    cycles: int
    ended: Literal["cycles", "budget"]
    order_seed: int
    start_order: tuple[int, ...]
    idle_wait_exceeded: int


@dataclass(frozen=True, slots=True)
class MachineMoment:
    """The whole machine at one moment: CPU time of all cores since it started, in ticks, of which the
    hypervisor stole `steal_ticks`. None is what it does not tell."""

    steal_ticks: int | None = None
    total_ticks: int | None = None
    frequencies_khz: tuple[int | None, ...] | None = None
    temperature_c: float | None = None
    load_average: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a child cost in all its turns together; `idle_cpu_ns` is the CPU time it used between them."""

    cpu_ns: int
    idle_cpu_ns: int
    voluntary_switches: int
    involuntary_switches: int
    minor_faults: int
    major_faults: int


@dataclass(frozen=True, slots=True)
class LaunchMachine:
    """The machine before the first turn and after the last, and what each child cost it."""

    before: MachineMoment
    after: MachineMoment
    children: tuple[ProcessUse, ...]


@dataclass(frozen=True, slots=True)
class LockstepResult:
    """A launch: each child's result as a run of its own would tell it, and the turns that made it."""

    results: tuple[RunnerResult, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultFile:
    schema_version: Literal[1]
    lockstep: LaunchFacts
    children: tuple[Mapping[str, object], ...]
    turns: Turns
    machine: LaunchMachine


def read_lockstep_result(path: Path) -> LockstepResult:
    """The result of a launch that the kit's own runner wrote to `path`."""
    try:
        content = parse_record(_ResultFile, read_json_object(path, _FIX), str(path), _FIX)
        children = (
            parse_result(dict(child), f"{path}: child {i}") for i, child in enumerate(content.children)
        )
        result = LockstepResult(tuple(children), content.turns, content.lockstep, content.machine)
    except (InputError, FormatError) as problem:
        raise RunError(f"the runner's result cannot be read: {problem.problem}", _FIX) from problem
    if contradiction := _contradiction(result):
        raise RunError(f"the runner's result contradicts itself: {contradiction}", _FIX)
    return result


def _contradiction(result: LockstepResult) -> str | None:
    """What cannot be true of one launch, or None."""
    launch, turns, children = result.launch, result.turns, len(result.results)
    made = launch.cycles * children
    columns = (turns.child, turns.started_ns, turns.iterations_ns, turns.idle_wait_ns, turns.cpu)
    lengths = {len(column) for column in columns}
    if lengths != {made}:
        return f"{launch.cycles} cycles of {children} children are not {sorted(lengths)} turns"
    if len(result.machine.children) != children:
        return f"{len(result.machine.children)} children had costs, {children} had results"
    if short := next((turn for turn in turns.iterations_ns if len(turn) != launch.turn_length), None):
        return f"a turn has {len(short)} executions, not {launch.turn_length}"
    started, *cycles = islice(shuffles(launch.order_seed, children), launch.cycles + 1)
    if (launch.start_order, turns.child) != (started, tuple(chain.from_iterable(cycles))):
        return f"the turns are not in the order of seed {launch.order_seed}"
    for number, child in enumerate(result.results):
        own = (t for at, t in zip(turns.child, turns.iterations_ns, strict=True) if at == number)
        if tuple(chain.from_iterable(own)) != child.iterations_ns:
            return f"child {number} has other times than its turns"
    return None
