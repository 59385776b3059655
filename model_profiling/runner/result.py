"""The runner's result files, for one job and for programs that took turns, and a check of program files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from model_profiling.core.errors import FormatError, InputError, RunError
from model_profiling.core.formatting import printable
from model_profiling.core.records import JsonObject, parse_record, read_json_object
from model_profiling.core.safe_read import open_regular, parse_json
from model_profiling.runner.features import features_of_flags


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """One output tensor of the last execution; in a run directory `file` is relative to it."""

    file: Path | None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()
    index: int = 0
    bytes: int = 0
    checksum: str = ""
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True, slots=True)
class CachedLoading:
    """Loading once more, and with XNNPACK's packed weights from a file (`runner/weights_cache.h`)."""

    without_ns: int
    with_ns: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Costs:
    """What a program costs until its first answer, by stages of the runner (`runner/costs.h`)."""

    stage_ns: Mapping[str, int]
    memory_bytes: Mapping[str, int]
    """What each stage had added when the process had most; empty if the system does not say."""
    peak_stage: str
    load_minor_faults: int
    load_major_faults: int
    first_minor_faults: int
    cached_share: float | None = None
    """How much of the program was in the page cache before a cold start; None if it was no cold start."""
    cached_loading: CachedLoading | None = None
    """Beside a cold start; None where ExecuTorch keeps no such file."""


@dataclass(frozen=True, slots=True)
class RunnerResult:
    """Times in nanoseconds of a monotonic clock, and the conditions they were taken in. A runner other than
    the kit's reports less: the rest is None or empty."""

    iterations_ns: tuple[int, ...]
    threads: int
    warmup: int
    cpu_ns: tuple[int, ...] = ()
    """CPU time of the calling thread in each inference."""
    preemptions: tuple[int, ...] = ()
    """How often others took a core during each inference."""
    load_ns: int | None = None
    first_ns: int | None = None
    loop_ns: int | None = None
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()
    features_verified: bool = False
    features_note: str | None = None
    traced: bool = False
    peak_memory_bytes: int | None = None
    costs: Costs | None = None
    outputs: tuple[OutputFacts, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    """The calls of each KleidiAI kernel in the measured executions, if they were counted."""
    kernels_note: str | None = None
    """Why nothing could be counted."""
    kernel_sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """The first three arguments of each kernel's calls, and how many calls had them."""
    boundaries_unavailable: str | None = None
    memory_read_rate: float | None = None
    """Bytes per second that the machine's memory gave, with as many threads."""
    executorch_version: str | None = None
    build_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultFile:
    """The JSON that the kit's own runner writes; it names CPU features by cpuinfo's flags."""

    schema_version: Literal[1]
    flags_present: tuple[str, ...]
    flags_masked: tuple[str, ...]
    layout_verified: bool
    executorch: str


def read_result(path: Path) -> RunnerResult:
    try:
        return parse_result(read_json_object(path, "run it again"), str(path))
    except (InputError, FormatError) as problem:
        raise RunError(f"the runner's result cannot be read: {problem.problem}", "run it again") from problem


def parse_result(content: JsonObject, where: str) -> RunnerResult:
    """Parse the JSON of the kit's own runner; `where` names its place in errors."""
    own = parse_record(_ResultFile, content, where, "run it again")
    translated = {
        "features_present": features_of_flags(own.flags_present),
        "features_masked": features_of_flags(own.flags_masked),
        "features_verified": own.layout_verified,
        "executorch_version": own.executorch,
    }
    result = parse_record(RunnerResult, {**content, **translated}, where, "run it again")
    times = result.iterations_ns
    if times and not 0 <= min(times) <= max(times) < 1 << 62:
        raise FormatError(f"{where}: iterations_ns: an impossible time", "run it again")
    return result


@dataclass(frozen=True, slots=True)
class RunnerReport:
    """What the runner says of the machine and of itself."""

    features: tuple[str, ...]
    operators: frozenset[str]
    """The operators that it has for calls outside delegates."""


def read_report(text: str) -> RunnerReport:
    """Read the output of `--features-only`."""
    try:
        report: Any = parse_json(text.encode(), "it", _FIX)
        return RunnerReport(
            features_of_flags(report["flags_present"]), frozenset(map(str, report["operators"]))
        )
    except (FormatError, KeyError, TypeError) as problem:
        raise RunError(f"the runner's feature report cannot be read: {problem}", "run it again") from problem


_FIX = "run it again"


@dataclass(frozen=True, slots=True)
class Turns:
    """Every turn of a launch, in order; one entry of each tuple is one turn.

    `started_ns` is a monotonic clock, the same for all children. `idle_wait_ns` is how long the child's
    threads kept spinning after the turn, which the next turn waited for. `cpu` is where the turn's first
    thread was at its end; None if unknown.
    """

    child: tuple[int, ...]
    started_ns: tuple[int, ...]
    iterations_ns: tuple[tuple[int, ...], ...]
    cpu_ns: tuple[tuple[int, ...], ...]
    preemptions: tuple[tuple[int, ...], ...]
    idle_wait_ns: tuple[int, ...]
    cpu: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """How a launch went; `idle_wait_exceeded` counts turns whose threads stayed busy beyond the wait."""

    turn_length: int
    cycles: int
    order_seed: int
    start_order: tuple[int, ...]
    idle_wait_exceeded: int


@dataclass(frozen=True, slots=True)
class MachineMoment:
    """The whole machine at one moment: ticks of its `cpus` since boot, of which the hypervisor stole
    `steal_ticks`. Unknown values are None."""

    steal_ticks: int | None = None
    idle_ticks: int | None = None
    total_ticks: int | None = None
    cpus: int | None = None
    capacities: tuple[int | None, ...] | None = None
    """The speed of each core, as the kernel's scheduler knows it; the fastest have 1024."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """What a child used in all its turns together; `idle_cpu_ns` is its CPU time between them. For
    `waited_ns` its threads were ready to run, but others had the core."""

    cpu_ns: int
    idle_cpu_ns: int
    waited_ns: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchMachine:
    before: MachineMoment
    after: MachineMoment
    children: tuple[ProcessUse, ...]


@dataclass(frozen=True, slots=True)
class LockstepResult:
    """A launch: each child's result, as if it had run alone, and the turns."""

    results: tuple[RunnerResult, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine


@dataclass(frozen=True, slots=True, kw_only=True)
class _LockstepFile:
    schema_version: Literal[1]
    lockstep: LaunchFacts
    children: tuple[Mapping[str, object], ...]
    turns: Turns
    machine: LaunchMachine


def read_lockstep_result(path: Path) -> LockstepResult:
    try:
        content = parse_record(_LockstepFile, read_json_object(path, _FIX), str(path), _FIX)
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
    launch, turns, children = result.launch, result.turns, len(result.results)
    made = launch.cycles * children
    executions = turns.iterations_ns, turns.cpu_ns, turns.preemptions
    columns = (turns.child, turns.started_ns, turns.idle_wait_ns, turns.cpu, *executions)
    lengths = {len(column) for column in columns}
    if lengths != {made}:
        return f"{launch.cycles} cycles of {children} children do not make {sorted(lengths)} turns"
    if len(result.machine.children) != children:
        return f"{len(result.machine.children)} children have costs, but {children} have results"
    every = (turn for column in executions for turn in column)
    if short := next((turn for turn in every if len(turn) != launch.turn_length), None):
        return f"a turn has {len(short)} executions instead of {launch.turn_length}"
    return None


# A first check of a `.pte`: whether it is one, complete, and of a version that this ExecuTorch reads.

_IDENTIFIER = b"ET12"
_EXTENDED = b"eh00"


def check_program(path: Path) -> None:
    """Raise an error if `path` cannot be an ExecuTorch program; the runtime checks the rest."""
    if not path.is_file():
        raise InputError(f"there is no program {path}", "export one with: sme2prof export MODEL --dtype fp32")
    with open_regular(path, follow=True) as stream:
        size, head = os.fstat(stream.fileno()).st_size, stream.read(64)
    again = "export it again with the installed ExecuTorch"
    if len(head) < 8:
        raise FormatError(f"{path} is cut short: {size} bytes", again)
    if head[4:8] != _IDENTIFIER:
        there = printable(head[4:8].decode("ascii", "replace"))
        raise FormatError(f"{path} is not an ExecuTorch program (it has {there}, not ET12)", again)
    if head[8:12] != _EXTENDED:
        return
    # The header has the size of the program and, since segments exist, where they begin and end.
    length = int.from_bytes(head[12:16], "little")
    program_size = int.from_bytes(head[16:24], "little")
    segments_at = int.from_bytes(head[24:32], "little")
    segments_size = int.from_bytes(head[32:40], "little") if length >= 32 else 0
    expected = max(program_size, segments_at + segments_size if segments_at else 0)
    if size < expected:
        raise FormatError(f"{path} is cut short: {size} of {expected} bytes", again)
