"""What goes into a target and what comes out: jobs and outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling.runner.result import LaunchFacts, LaunchMachine, RunnerResult, Turns

if TYPE_CHECKING:
    from model_profiling.runner.samples import Samples  # needs numpy, which the doctor does without


@dataclass(frozen=True, slots=True)
class Job:
    """One process to start: which program, how often, what to switch off, and what to keep.

    `runner_path` is a user's own executor_runner; None is the kit's runner. `disable` holds feature names of
    `runner.features`. `kernels` counts kernel calls, which slows them; `sample_hz` is how often to record
    where each thread is. A job with either measures no latency.
    """

    model: Path
    method: str = "forward"
    threads: int = 1
    warmup: int = 1
    runs: int = 1
    disable: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    sizes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Of inputs of variable length, by number."""
    values: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """Of inputs that are not made up, by number."""
    state: tuple[tuple[int, int, int], ...] = ()
    """Buffer, offset and size of planned memory that is put back before each execution."""
    seed: int = 0
    fill: Literal["random", "ones"] = "random"
    etdump: bool = False
    kernels: bool = False
    memory_rate: bool = False
    """Also measure how fast the machine's memory can be read."""
    sample_hz: int | None = None
    save_outputs: bool = False
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()
    libraries: tuple[Path, ...] = ()
    """With operators of their own, on the machine that runs it."""
    extra_args: tuple[str, ...] = ()
    runner_path: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left behind. `kernels` maps each executed KleidiAI kernel to its calls in the measured
    executions; if nothing could be counted, `kernels_note` says why. The first `etdump_warmup_runs` runs in
    the dump are warm-up (none with the kit's own runner)."""

    result: RunnerResult
    log: Path
    etdump: Path | None = None
    boundaries: Path | None = None
    """When the operators in the dump began and ended; if None, `result` says why."""
    etdump_warmup_runs: int = 0
    outputs: tuple[Path, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    kernels_at_load: Mapping[str, int | None] = field(default_factory=dict)
    kernels_note: str | None = None
    kernel_sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """What the kernels were called with, as the runner reports it."""
    samples: Samples | None = None
    """Where the threads were seen."""
    timings_are_latency: bool = True


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """One launch of programs that take turns, each in its own process.

    In each cycle every job has one turn of `turn_length` executions, in an order shuffled from `order_seed`.
    The launch ends after `cycles`, or starts no new cycle once the turns have taken `budget_s`; at least one
    of the two is given, and there is always one cycle. The `runs`, `timeout_s` and `cpu_affinity` of its jobs
    are ignored: those of the launch apply.
    """

    jobs: tuple[Job, ...]
    cycles: int | None = None
    turn_length: int = 4
    order_seed: int = 0
    budget_s: float | None = None
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LockstepOutcome:
    """What a launch left behind: an outcome for each job, and the turns that were taken."""

    outcomes: tuple[Outcome, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine
    log: Path

    @property
    def results(self) -> tuple[RunnerResult, ...]:
        return tuple(outcome.result for outcome in self.outcomes)
