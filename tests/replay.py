"""A target that answers each job with what a recorded run measured: a whole pipeline without a process.

It may say that it is another machine than the one recorded. What a job asks for (threads, SME2 on or off,
tracer, kernels) chooses the recorded process, one round after another.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from turn_order import shuffles

from model_profiling.config.series import Series
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.features import FEATURES
from model_profiling.runner.machine import PlatformName
from model_profiling.runner.result import (
    LaunchFacts,
    LaunchMachine,
    MachineMoment,
    OutputFacts,
    ProcessUse,
    RunnerResult,
    Turns,
)
from model_profiling.runs import Manifest, Result, Times
from model_profiling.runs.journal import Entry, Journal, Kind
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.schedule import TRIAL
from model_profiling.targets import (
    Job,
    LockstepJob,
    LockstepOutcome,
    MachineFacts,
    Outcome,
    Target,
    TargetChoice,
    parse_target,
)

ARM_ONLY = "KleidiAI kernels exist on Arm only"
_NO_USE = ProcessUse(0, 0)


@dataclass
class ReplayTarget(Target):
    """`before` is called with each job and may raise what a process would; `prepare` raises `unprepared`."""

    recorded: Path
    machine: MachineFacts | None = None
    """Which machine it says it is; None is the one that was recorded."""
    system: PlatformName | None = None
    """And of which kind."""
    before: Callable[[Job], object] = lambda _job: None
    unprepared: Exception | None = None
    jobs: list[Job] = field(default_factory=list)
    _turns: Counter[tuple[object, ...]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        manifest = read_manifest(self.recorded)
        assert manifest is not None, f"{self.recorded} holds no recorded run"
        self.manifest: Manifest = manifest
        self.journal = Journal(self.recorded)

    @property
    def name(self) -> str:
        return self.manifest.target.name

    @property
    def choice(self) -> TargetChoice:
        return parse_target(self.name)

    @property
    def platform(self) -> PlatformName:
        return self.system or self.manifest.target.platform  # type: ignore[return-value]

    @property
    def place(self) -> str:
        return self.platform

    @property
    def timings_are_latency(self) -> bool:
        return self.manifest.target.times is Times.HARDWARE

    @property
    def build(self) -> RunnerBuild:
        """What the recorded run says of its runner, so that it can be continued."""
        runner, executorch = self.manifest.runner, self.manifest.executorch
        built, found = runner.build_id or "", executorch.version or ""
        nowhere = Path("replayed")
        return RunnerBuild(nowhere, built, nowhere, found, executorch.sha, runner.compiler or "", 0.0, True)

    def prepare(self) -> None:
        if self.unprepared is not None:
            raise self.unprepared

    def facts(self) -> MachineFacts:
        recorded = self.manifest.machine.before
        assert recorded is not None
        return self.machine or recorded

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        self.jobs.append(job)
        self.before(job)
        kind: Kind = "evidence" if job.kernels else "traced" if job.etdump else "untraced"
        entry = self._next(kind, job)
        timed = entry if entry.etdump or not job.etdump else self._next("traced", job)
        log = into / f"{stem}.log"
        log.write_text(f"replayed: {entry.step.key} of {self.recorded.name}\n")
        arm = self.facts().machine in ("aarch64", "arm64")
        inferences = timed.inferences
        first = 0 if job.etdump else inferences.first
        wall, cpu, preemptions = (
            tuple(number for turn in turns for number in turn[first:])[: job.runs]
            for turns in (inferences.wall, inferences.cpu, inferences.preemptions)
        )
        result = replace(
            self._result(entry, job, into, stem),
            iterations_ns=wall,
            cpu_ns=() if job.runner_path else cpu,
            preemptions=() if job.runner_path else preemptions,
            kernels=dict(entry.kernels) if job.kernels and arm else {},
            kernels_note=None if not job.kernels else entry.kernels_note if arm else ARM_ONLY,
        )
        assert len(result.iterations_ns) == job.runs, f"{timed.step.key} has no {job.runs} runs"
        return Outcome(
            result=result,
            log=log,
            etdump=self._copied(timed.etdump, into / f"{stem}.etdump") if job.etdump else None,
        )

    def why_not_lockstep(self, jobs: Sequence[Job]) -> str | None:
        recorded = any(entry.launch for entry in self.journal.entries())
        return super().why_not_lockstep(jobs) or (
            None if recorded else f"{self.recorded.name} was recorded in rounds"
        )

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        """The turns of recorded launches, as many as were recorded, whatever `job` asks for."""
        trial = job.cycles == TRIAL.cycles  # it only asks how long a launch takes
        self.jobs += () if trial else job.jobs
        log = into / f"{stem}.log"
        log.write_text(f"replayed: a launch of {self.recorded.name}\n")
        entries, outcomes = [], []
        for child, asked in enumerate(job.jobs):
            self.before(asked)
            entry = self._next("traced" if asked.etdump else "untraced", asked, count=not trial)
            own = f"{stem}_child{child}"
            result = replace(
                self._result(entry, asked, into, own),
                iterations_ns=tuple(ns for turn in entry.turns_ns for ns in turn),
            )
            dump = self._copied(entry.etdump, into / f"{own}.etdump") if asked.etdump else None
            entries.append(entry)
            outcomes.append(Outcome(result, log, dump))
        first = entries[0]
        cycles = len(first.turns_ns)
        started, *orders = islice(shuffles(job.order_seed, len(entries)), cycles + 1)
        taken = [(turn, child) for turn, order in enumerate(orders) for child in order]
        turns = Turns(
            child=tuple(child for _, child in taken),
            started_ns=tuple(entries[child].turns_started_ns[turn] for turn, child in taken),
            iterations_ns=tuple(entries[child].turns_ns[turn] for turn, child in taken),
            cpu_ns=tuple(entries[child].turns_cpu_ns[turn] for turn, child in taken),
            preemptions=tuple(entries[child].turns_preemptions[turn] for turn, child in taken),
            idle_wait_ns=(0,) * len(taken),
            cpu=tuple(entries[child].turns_cpu[turn] for turn, child in taken),
        )
        facts = LaunchFacts(len(first.turns_ns[0]), cycles, job.order_seed, started, 0)
        use = tuple(entry.use or _NO_USE for entry in entries)
        before, after = first.machine_before or MachineMoment(), first.machine_after or MachineMoment()
        machine = LaunchMachine(before, after, use)
        return LockstepOutcome(tuple(outcomes), turns, facts, machine)

    def _next(self, kind: Kind, job: Job, *, count: bool = True) -> Entry:
        """The recorded process most like `job`, of the next round."""
        fitting = sorted(self.manifest.results, key=lambda result: _unlike(result, job))
        rounds = self.journal.ended_well(kind, fitting[0].series)
        assert rounds, f"{self.recorded} holds no process of kind {kind}"
        turn = (kind, job.threads, job.disable, job.extra_args)
        self._turns[turn] += count
        return rounds[(self._turns[turn] - count) % len(rounds)]

    def _result(self, entry: Entry, job: Job, into: Path, stem: str) -> RunnerResult:
        present = tuple(name for name in FEATURES if name in self.facts().features)
        own = job.runner_path is not None
        return RunnerResult(
            iterations_ns=(),
            threads=job.threads,
            warmup=job.warmup,
            load_ns=entry.load_ns,
            first_ns=entry.first_ns,
            features_present=() if own else present,
            features_masked=() if own else tuple(name for name in present if name in job.disable),
            features_verified=True,
            traced=job.etdump,
            peak_memory_bytes=entry.peak_memory_bytes,
            outputs=tuple(self._outputs(entry, into, stem)) if job.save_outputs else (),
            executorch_version=entry.executorch_version,
            build_id=None if own else entry.build_id,
        )

    def _outputs(self, entry: Entry, into: Path, stem: str) -> Iterator[OutputFacts]:
        for index, kept in enumerate(entry.outputs):
            file = self._copied(kept.file, into / f"{stem}_output{index}.bin")
            yield replace(kept, index=index, bytes=file.stat().st_size, file=file)

    def _copied(self, name: str | Path | None, to: Path) -> Path:
        assert name is not None
        shutil.copyfile(self.recorded / name, to)
        return to


def _unlike(result: Result, job: Job) -> tuple[bool, bool, Series]:
    off = "sme2" in job.disable or "sme2-only" in job.disable
    return (result.sme2_left_on is off, result.threads != job.threads, result.series)
