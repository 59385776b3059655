"""Measures one run: executes a step on a target and keeps its files, so that it can be stopped at any moment.

A process works in a scratch folder; its files are moved to their final names; then one journal line makes the
step count. A kill before that line repeats the step, a kill after it does not.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model_profiling.config.names import SAMPLES, XNNTRACE_LOG, RunFiles
from model_profiling.config.series import Diagnostic, Pair, Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, RunError
from model_profiling.core.formatting import duration
from model_profiling.core.records import write_record
from model_profiling.core.stdio import current_progress
from model_profiling.runs.feeding import Feed
from model_profiling.runs.figures import schedule_facts, with_results
from model_profiling.runs.journal import TIMED, Entry, Journal, RunStep, moment
from model_profiling.runs.manifest import Ended, Manifest, State
from model_profiling.runs.schedule import Order, emulated_seconds
from model_profiling.targets import Job, Outcome, Target

_KERNEL_LINE = re.compile(r"XNNPACK.{0,40}(?:Using \w{1,40} microkernel '|running operator \d)")
"""In XNNPACK's log, on a terminal or in logcat."""


HZ = 1000
"""Per thread; `bench/sampling_cost.py` measures the cost."""
SECONDS = 3.0
_MOST_SAMPLED_RUNS = 20_000


@contextlib.contextmanager
def scratch_folder(place: RunFiles) -> Iterator[Path]:
    """An empty folder for one process or launch, removed afterwards. Attempts never share one, so a process
    that outlived a killed pipeline cannot write among the files of its successor."""
    work = files.real_folder(place.path, place.work)
    scratch = files.make_folder(work / f"process-{secrets.token_hex(8)}")
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass(slots=True, eq=False)
class Measuring:
    """One session of measuring a run, and its state."""

    config: ProfileConfig
    place: RunFiles
    target: Target
    journal: Journal
    session: int
    order: Order
    """What this session measures."""
    manifest: Manifest
    whole: Order
    """What all sessions together measure."""
    warnings: list[Diagnostic] = field(default_factory=list)
    ended: Ended | None = None
    """Why the rounds ended; None while they go on."""
    failed: set[Series] = field(default_factory=set)
    moved: Path | None = None
    feed: Feed = field(default_factory=Feed)
    libraries: tuple[Path, ...] = ()

    def write(self, state: State, end: str = "running", reason: BaseException | None = None) -> None:
        """Write the manifest; `reason` is what ended the session early."""
        *past, session = self.manifest.sessions
        session = replace(session, end=end, ended=None if end == "running" else moment())
        if reason is not None:
            problem, fix = str(reason), ""
            if isinstance(reason, ProfilingError):
                problem, fix = reason.problem, reason.fix
            # Notes tell, for example, which settings of a phone are not restored yet.
            problem = "; ".join(filter(None, (problem, *getattr(reason, "__notes__", ()))))
            session = replace(session, problem=problem or None, fix=fix or None)
        manifest = replace(
            self.manifest,
            state=state,
            sessions=(*past, session),
            schedule=schedule_facts(self.config, self.whole, self.journal, self.ended),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )
        self.manifest = with_results(manifest, self.config, self.journal, self.place)
        write_record(self.place.manifest, self.manifest)

    def gather_evidence(self) -> None:
        """Run the processes that show kernels and outputs; they are never timed."""
        steps = self.missing(self.order.evidence)
        if steps:
            stage = f"gathering evidence: {self.place.model_stem}"
            if not self.target.timings_are_latency:
                # An emulator shows nothing while it computes, so say how long it will take.
                one_s = emulated_seconds(self.config.model, self.config.method, self.feed.lengths)
                about = f"about {duration(len(steps) * one_s)}" if one_s else "time unknown"
                stage = f"emulating {self.place.model_stem} ({about})"
            current_progress().stage(stage)
        for number, step in enumerate(steps):
            current_progress().advance(number, len(steps), str(step.series))
            self.do(step)
            self.write("running")
            current_progress().advance(number + 1, len(steps))

    def sample(self) -> None:
        """Sample where operators spend their time: run each series once more, alone. The times of these runs
        are not latencies. If no times are, sample the series with evidence. Only the kit's own runner can."""
        if not self.config.schedule.sample:
            return
        latencies = self.target.timings_are_latency
        steps = self.steps_of(0) if latencies else self.order.evidence
        experiments = {step.series: self.config.experiment(step.series.experiment) for step in steps}
        own = (
            series
            for series, experiment in experiments.items()
            if experiment.runner is None and series not in self.failed
        )
        missing = self.missing(RunStep("sampled", series) for series in sorted(own, key=str))
        if missing:
            current_progress().stage("sampling threads")
        for number, step in enumerate(missing, start=1):
            # In a warm-up execution the runner counts the backend's clock reads per operator: make one.
            warmup, runs = max(1, experiments[step.series].warmup) if latencies else 1, 1
            measured = self.journal.latencies_ms(step.series, self.journal.rounds_of(step.series))
            every = [latency for of_round in measured for latency in of_round]
            if latencies and every:
                runs = min(math.ceil(SECONDS * 1e3 / statistics.median(every)), _MOST_SAMPLED_RUNS)
            self.do(step, runs=runs, warmup=warmup, sample_hz=HZ)
            self.write("running")
            current_progress().advance(number, len(missing), str(step.series))

    def missing(self, steps: Iterable[RunStep]) -> list[RunStep]:
        """Return the steps still to do; a failed step is tried again by the next session, not by this one."""
        return [step for step in steps if not self.journal.ended_in(step, self.session)]

    def steps_of(self, round_number: int) -> tuple[RunStep, ...]:
        """Return the steps of a round, without experiments that failed."""
        if round_number >= len(self.order.rounds):
            return ()
        return tuple(step for step in self.order.rounds[round_number] if step.series not in self.failed)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs whose sides are both measured and did not fail."""
        measured = {step.series for step in self.steps_of(0)}
        return tuple(pair for pair in self.config.pairs if {pair.baseline, pair.candidate} <= measured)

    @property
    def timed_entries(self) -> list[Entry]:
        return self.journal.timed_of(experiment.name for experiment in self.config.experiments)

    @property
    def rounds_begun(self) -> int:
        return self.journal.rounds_begun(experiment.name for experiment in self.config.experiments)

    def do(self, step: RunStep, **job: Any) -> None:
        """Run one process alone; `job` overrides fields of its job."""
        blank = self.blank(step)
        began = time.monotonic()
        with scratch_folder(self.place) as scratch:
            try:
                outcome = self.target.execute(replace(self.job(step), **job), scratch, "process")
                self._refuse_logged_kernels(step, outcome.log)
                entry = self.keep(blank, outcome)
            except RunError as problem:
                # A crash must not cost others their results; without evidence, timings still count.
                if step.kind in TIMED:
                    self.failed.add(step.series)
                log, failed_log = scratch / "process.log", self.place.of_series(step.series, "_failed.log")
                log_name = self._move(log, failed_log) if log.exists() else None
                entry = replace(blank, state="failed", problem=problem.problem, fix=problem.fix, log=log_name)
        self.journal.append(replace(entry, seconds=round(time.monotonic() - began, 4)))

    def _refuse_logged_kernels(self, step: RunStep, log: Path) -> None:
        """Writing a log of kernels takes time, and a user's own runner may do so though nothing names it."""
        experiment = self.config.experiment(step.series.experiment)
        if experiment.runner is None or step.kind not in TIMED:
            return
        with log.open(encoding="utf-8", errors="replace") as lines:
            if any(map(_KERNEL_LINE.search, lines)):
                raise InputError(
                    f"{experiment.name}: {experiment.runner} writes XNNPACK's log (its output shows it), "
                    "so its times are not latencies",
                    'name a runner built without that log, or set "mode": "xnntrace" to see kernels',
                )

    def blank(self, step: RunStep) -> Entry:
        return Entry(
            kind=step.kind,
            experiment=step.series.experiment,
            threads=step.series.threads or 1,
            round=step.round,
            session=self.session,
            state="done",
            started=moment(),
            seconds=0.0,
        )

    def job(self, step: RunStep) -> Job:
        experiment = self.config.experiment(step.series.experiment)
        inputs = self.config.inputs
        builtin = experiment.runner is None
        evidence = step.kind == "evidence"
        # If times are not latencies, or a trace was requested, one process does everything.
        whole = evidence and (not self.target.timings_are_latency or experiment.mode == "xnntrace")
        once = evidence and not whole
        return Job(
            model=self.config.model,
            method=self.config.method or "forward",
            threads=step.series.threads or 1,
            warmup=0 if once else experiment.warmup,
            runs=1 if once else experiment.runs,
            disable=experiment.switched_off,
            inputs=inputs.files,
            sizes=self.feed.sizes,
            values=self.feed.values,
            state=self.feed.state,
            seed=inputs.seed,
            fill=inputs.fill,
            etdump=whole or step.kind == "traced",
            kernels=evidence and builtin,
            cold=once and builtin,
            memory_rate=once and builtin and bool(self.feed.state),  # for what a step of an answer reads
            save_outputs=evidence and builtin,
            timeout_s=self.config.schedule.timeout_s,
            cpu_affinity=experiment.cpu_affinity,
            libraries=self.libraries if builtin else (),
            extra_args=experiment.extra_args,
            runner_path=experiment.runner,
        )

    def keep(self, blank: Entry, outcome: Outcome) -> Entry:
        """Move the process's files to their final names; latencies are stored only in the journal."""
        facts = {name: getattr(outcome.result, name) for name in _SAID_BY_RUNNER}
        entry = replace(blank, **facts, etdump_warmup_runs=outcome.etdump_warmup_runs)
        step, place = entry.step, self.place
        # On other CPUs, missing Arm features are no surprise.
        if outcome.result.features_note and self.target.facts().is_arm:
            note = f"CPU features, as the runner found them: {outcome.result.features_note}"
            self.warn(Diagnostic(step.series, "features", note))
        if outcome.result.traced and step.kind == "untraced":
            seen = "this executor_runner reports execution times only in its dump"
            self.warn(Diagnostic(step.series, "tracer_on", seen, "they were measured with the tracer on"))
        if outcome.etdump is not None:
            entry = replace(entry, etdump=self._move(outcome.etdump, place.dump(step.series, step.round)))
            boundaries = place.boundaries(step.series, step.round)
            boundaries.unlink(missing_ok=True)  # of an earlier dump, if the step is repeated
            if outcome.boundaries is not None:
                entry = replace(entry, boundaries=self._move(outcome.boundaries, boundaries))
        if outcome.samples is not None:
            write_record(place.of_series(step.series, SAMPLES), outcome.samples)
        if log := self._log_name(step):
            # Copied, because all processes of a launch share one log.
            named = place.of_series(step.series, log)
            with files.replacing(named) as part:
                shutil.copyfile(outcome.log, part)
            entry = replace(entry, log=place.relative(named))
        outputs = tuple(
            replace(
                made,
                file=Path(self._move(made.file, place.of_series(step.series, f"_output{made.index}.bin"))),
            )
            for made in outcome.result.outputs
            if made.file is not None
        )
        return replace(entry, outputs=outputs)

    def _log_name(self, step: RunStep) -> str | None:
        """One log beside each dump and one for the evidence; logs of later rounds say nothing new."""
        if step.kind == "evidence":
            if self.config.experiment(step.series.experiment).mode == "xnntrace":
                return XNNTRACE_LOG
            return "_evidence.log" if self.target.timings_are_latency else ".log"
        return ".log" if step.kind == "traced" and step.round == 0 else None

    def _move(self, source: Path, name: Path) -> str:
        files.move(source, name)
        return self.place.relative(name)

    def warn(self, remark: Diagnostic) -> None:
        if remark not in self.warnings:
            self.warnings.append(remark)


_SAID_BY_RUNNER = (
    "iterations_ns", "cpu_ns", "preemptions",
    "load_ns", "first_ns", "peak_memory_bytes", "costs", "features_present", "features_masked",
    "build_id", "executorch_version", "memory_read_rate", "kernels", "kernels_note", "kernel_sizes",
)  # fmt: skip
