"""What the kit asks of a place where programs run, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from model_profiling.runner.machine import Energy, Gauge, MachineFacts, PlatformName, TargetChoice
from model_profiling.runner.result import LaunchFacts, LaunchMachine, RunnerResult, Turns

if TYPE_CHECKING:
    from model_profiling.runner.samples import Samples  # needs numpy, which a doctor does without


@dataclass(frozen=True, slots=True)
class Job:
    """One process to start: which program, how often, with what switched off, and what to keep.

    `runner_path` names an executor_runner of the user's own; None is the kit's runner. `disable` holds
    feature names as `runner.features` knows them. `kernels` counts kernel calls, which slows the calls
    counted, and `sample_hz` looks that often where each thread is: a job that asks for either measures no
    latency.
    """

    model: Path
    method: str = "forward"
    threads: int = 1
    warmup: int = 1
    runs: int = 1
    disable: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    seed: int = 0
    fill: Literal["random", "ones"] = "random"
    etdump: bool = False
    kernels: bool = False
    sample_hz: int | None = None
    save_outputs: bool = False
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()
    extra_args: tuple[str, ...] = ()
    runner_path: Path | None = None
    gauge: Gauge | None = None
    """A fuel gauge to read while it runs, for its energy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left behind. `kernels` maps each executed KleidiAI kernel to its calls in the measured
    executions; when it is empty because nothing could be counted, `kernels_note` says why. The first
    `etdump_warmup_runs` runs in the dump are warm-up (none with the kit's own runner)."""

    result: RunnerResult
    log: Path
    etdump: Path | None = None
    boundaries: Path | None = None
    """When the operators in the dump began and ended; None where `result` says why not."""
    etdump_warmup_runs: int = 0
    outputs: tuple[Path, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    kernels_at_load: Mapping[str, int | None] = field(default_factory=dict)
    kernels_note: str | None = None
    kernel_sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """What they were called with, as the runner tells it."""
    samples: Samples | None = None
    """Where the threads were seen."""
    timings_are_latency: bool = True
    energy: Energy | None = None
    gauge: Path | None = None
    """Every reading of the fuel gauge, as CSV."""
    told: Path | None = None
    """What the kit's runner wrote of it; None where it ran by another, or took turns."""


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """One launch of programs that take turns, each in a process of its own.

    In each cycle every job has one turn of `turn_length` executions, in an order shuffled from `order_seed`.
    The launch ends after `cycles`, or begins no further cycle once the turns have taken `budget_s`; at least
    one of the two is given, and one cycle is always made. Of a job, `runs`, `timeout_s` and `cpu_affinity`
    have no meaning here: those of the launch hold for all.
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
    """What a launch left behind: for each job what it would have left alone, and the turns that made it."""

    outcomes: tuple[Outcome, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine
    log: Path
    told: Path | None = None
    """What the kit's runner wrote of the launch."""

    @property
    def results(self) -> tuple[RunnerResult, ...]:
        return tuple(outcome.result for outcome in self.outcomes)


class Target(Protocol):
    """A place where programs run."""

    @property
    def name(self) -> str:
        """What the user calls it."""

    @property
    def choice(self) -> TargetChoice:
        """What opens it again."""

    @property
    def platform(self) -> PlatformName:
        """What kind of machine it is."""

    @property
    def place(self) -> str:
        """The folder its runs go to; two machines of one kind have different ones."""

    @property
    def timings_are_latency(self) -> bool:
        """False where time passes differently than on the hardware described."""

    def prepare(self) -> None:
        """Make ready everything a job needs, or say what is missing. Safe to repeat."""

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        """Run `job`; every file it leaves is `into`/`stem` with an ending."""

    def facts(self) -> MachineFacts:
        """The machine, now."""


@runtime_checkable
class TunedTarget(Protocol):
    """A place that one run has to itself, set up for measuring, and gives back as it was found."""

    def held_ready(self) -> AbstractContextManager[None]:
        """Set what was asked for, for the length of the block; however that ends, put it back."""

    def take_notes(self) -> tuple[str, ...]:
        """What a person should know of settings that were changed and put back, said once."""


@runtime_checkable
class MeteredTarget(Protocol):
    """A place that may tell what its battery gives."""

    def gauge(self) -> Gauge | str:
        """What to read, or why nothing it tells would mean anything now, as a clause."""


@runtime_checkable
class LockstepTarget(Target, Protocol):
    """A place where programs can also take turns."""

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        """Run the launch; its files are `into`/`stem` with an ending, those of job N `stem_childN`."""

    def why_not_lockstep(self, jobs: Sequence[Job], peaks: Mapping[Path, int]) -> str | None:
        """Why these jobs cannot take turns here, or None; `peaks` is the peak memory of known programs."""
