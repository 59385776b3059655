"""A run that is measured piece by piece; the caller decides when to measure the next piece.

Several runs can be open on one target, so that their launches are spread over the same hours. The results of
a piece are in the run directory when `step` returns: a killed process or a lost machine costs one piece, and
opening the run again with `resume` goes on, from any host that reaches the same device.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from model_profiling.config.reading import ProfileConfig
from model_profiling.config.remarks import Diagnostic
from model_profiling.config.series import Series
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import listing
from model_profiling.core.progress import Progress, Silent
from model_profiling.runs import Metrics
from model_profiling.runs.begin import (
    Start,
    begin,
    check_directory,
    checked_feed,
    one_method,
)
from model_profiling.runs.figures import Measured, refresh
from model_profiling.runs.folders import locked
from model_profiling.runs.journal import Step
from model_profiling.runs.measuring import Measuring, Piece, PutAside
from model_profiling.runs.rounds import RemainingRounds, Rounds
from model_profiling.runs.schedule import make_schedule
from model_profiling.targets import MachineFacts, Target
from model_profiling.targets.machine_lock import measuring_alone, working_beside


class ReadyTarget:
    """A target prepared once for every run measured on it: the runner is installed, its settings are made,
    and all runs share the facts read before."""

    def __init__(self, target: Target, progress: Progress | None = None) -> None:
        self.target = target
        self.runs: list[OpenRun] = []
        """Runs that are open on it."""
        self._set = contextlib.ExitStack()
        self._notes: list[Diagnostic] = []
        (progress or Silent()).stage("preparing the runner")
        target.prepare()
        self._set.enter_context(target.held_ready())

    @cached_property
    def before(self) -> MachineFacts:
        return self.target.facts()

    def notes(self) -> list[Diagnostic]:
        """Return notes about its settings so far; `close` may add some about restoring them."""
        self._notes += (Diagnostic(None, "settings", note) for note in self.target.take_notes())
        return list(self._notes)

    def close(self) -> None:
        """Restore the settings; unfinished runs can be continued. Safe to repeat."""
        try:
            self._set.close()
        finally:
            self._end_runs(PutAside())

    def give_up(self, reason: BaseException) -> None:
        """Record in every open run why the target cannot be used any more. If its settings cannot be restored
        either, record and raise that instead."""
        try:
            self._set.__exit__(type(reason), reason, reason.__traceback__)
        except BaseException as told:
            reason = told
            raise
        finally:
            self._end_runs(reason)

    def _end_runs(self, reason: BaseException) -> None:
        for run in tuple(self.runs):
            run.end(reason)

    def __enter__(self) -> ReadyTarget:
        return self

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if problem is None:
            self.close()
        else:
            self.give_up(problem)


def open_run(
    config: ProfileConfig,
    target: Target | ReadyTarget,
    start: Start | None = None,
    progress: Progress | None = None,
) -> OpenRun:
    return OpenRun([(config, start or Start())], target, progress)


class OpenRun:
    """One run, or several whose programs take turns. If an exception ends it, the manifest says why."""

    def __init__(
        self,
        asked: Sequence[tuple[ProfileConfig, Start]],
        target: Target | ReadyTarget,
        progress: Progress | None = None,
    ) -> None:
        """Begin or continue the run of each config in its own output_root, locked until `close`. Several must
        have like schedules. A `ReadyTarget` may have more runs open, and its owner takes turns with others
        who measure on this machine; any other is prepared for these alone, and this machine kept until
        `close`. Nothing is touched before the target is ready."""
        progress = progress or Silent()
        asked = [
            (config.model_copy(update={"method": one_method(config.model, config.method)}), way)
            for config, way in asked
        ]
        self._held = contextlib.ExitStack()
        self._open, self._measured = True, False
        self._runs: list[Measuring] = []
        self._own = not isinstance(target, ReadyTarget)
        bare = target.target if isinstance(target, ReadyTarget) else target
        with contextlib.ExitStack() as locks:
            feeds = []
            for config, way in asked:
                feeds.append(checked_feed(config))
                locks.enter_context(locked(config.output_root))
                make_schedule(config, 0, latencies=bare.timings_are_latency, only=way.only)  # refuses names
                check_directory(config.output_root, resume=way.resume, force=way.force)
            self._ready = target if isinstance(target, ReadyTarget) else ReadyTarget(target, progress)
            self._ready.runs.append(self)
            with self._kept():
                without = self._keep_machine(locks, asked, progress) if self._own else []
                for (config, way), fed in zip(asked, feeds, strict=True):
                    before = self._ready.before
                    self._runs.append(begin(config, bare, before, way, fed=fed, progress=progress))
                # Only now is there a run to record it in; if `begin` fails, the caller reports it.
                self._remark(without)
                self._rounds = Rounds(tuple(self._runs), across=len(self._runs) > 1)
                self._pieces = self._measure()
            self._held = locks.pop_all()

    def _keep_machine(
        self, until: contextlib.ExitStack, asked: Sequence[tuple[ProfileConfig, Start]], progress: Progress
    ) -> list[Diagnostic]:
        """Wait until nobody else measures on this machine, and let nobody disturb what is measured here;
        return why that cannot be had, if so. Other machines are held by their target."""
        target = self._ready.target
        if not target.is_here:
            return []
        alone, words = target.timings_are_latency, asked[0][1].command_line
        programs = listing(dict.fromkeys(config.model.stem for config, _ in asked))
        command = f" ({' '.join(words)})" if words else ""
        what = f"{'measures' if alone else 'emulates'} {programs}{command}"
        lock = measuring_alone if alone else working_beside
        if problem := until.enter_context(lock(what, waiting=progress.stage)):
            seen = f"other measurements on this machine are not noticed: {problem.problem}"
            return [Diagnostic(None, "unlocked", seen, problem.fix)]
        return []

    def _measure(self) -> Iterator[Piece]:
        for run in self._runs:
            yield from run.gather_evidence()
        yield from self._rounds.measure()
        for run in self._runs:
            yield from sample(run)

    def step(self) -> Piece | None:
        """Measure the next piece, or return None if none is left. A failing program is a result; any other
        failure (the machine is gone, the disk is full) ends the run and is raised."""
        self._check_open()
        began = time.monotonic()
        with self._kept():
            piece = next(self._pieces, None)
            if piece is None:
                self._measured = True
                return None
            for run in self._runs:
                run.write("running")
        return replace(piece, seconds=round(time.monotonic() - began, 4))

    def left(self) -> RemainingWork:
        """Return an estimate of what is still to be measured."""
        return left_of(self._rounds) if self._open and not self._measured else RemainingWork()

    def measure(self) -> tuple[Measured, ...]:
        """Measure all that is left. However it ends, each manifest says how, and all results are kept."""
        while self.step() is not None:
            pass
        return self.finish_all()

    def finish(self) -> Measured:
        (measured,) = self.finish_all()
        return measured

    def finish_all(self) -> tuple[Measured, ...]:
        """Stop measuring and compute the results of each run. Its directory stays locked until `close`."""
        self._check_open()
        with self._kept():
            after = self._ready.target.facts()
            self._ready.runs.remove(self)
            if self._own:
                self._ready.close()
        self._open = False
        self._remark(self._ready.notes())
        return tuple(_finish(run, after) for run in self._runs)

    def give_up(self, reason: BaseException) -> None:
        """Record in each run what ended it, so that it can be continued, and release everything. Safe to
        repeat: the first reason counts."""
        if self._own and self._open:
            self._ready.give_up(reason)
        self.end(reason)

    def end(self, reason: BaseException) -> None:
        """End the run because of `reason`; the target stays ready for whoever prepared it."""
        if not self._open:
            return
        self._open = False
        if self in self._ready.runs:
            self._ready.runs.remove(self)
        if self._runs:  # without a run to record them in, the user sees the notes
            self._remark(self._ready.notes())
        for run in self._runs:
            with contextlib.suppress(InputError):  # on a full disk, what ended the run matters more
                run.interrupted(reason)
        self._held.close()

    def close(self) -> None:
        """Release the directory; an unfinished run can be continued."""
        if self._own:
            self._ready.close()
        self.end(PutAside())
        self._held.close()

    def __enter__(self) -> OpenRun:
        return self

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if problem is not None:
            self.give_up(problem)
        self.close()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        """Record in the run any exception that ends it."""
        try:
            yield
        except BaseException as problem:
            self.give_up(problem)
            raise

    def _check_open(self) -> None:
        if not self._open:
            raise AssertionError("this run has ended: open it again")

    def _remark(self, remarks: Sequence[Diagnostic]) -> None:
        for run in self._runs:
            run.warnings += remarks


def _finish(run: Measuring, after: MachineFacts) -> Measured:
    run.manifest = replace(run.manifest, machine=replace(run.manifest.machine, after=after))
    run.write("analysing", "done")
    shutil.rmtree(run.place.work, ignore_errors=True)
    run.drop_untold()
    return refresh(Measured(run.place, run.config, run.journal, run.manifest, Metrics(), run.moved))


# After the rounds, if requested, each experiment runs once more, alone, to sample where operators spend their
# time. The times of these runs are not latencies.

HZ = 1000
"""Per thread; `bench/sampling_cost.py` measures the cost."""
SECONDS = 3.0
_MOST_SAMPLED_RUNS = 20_000


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Estimated pieces and seconds; the estimate improves with every piece."""

    evidence: int = 0
    launches: RemainingRounds = field(default_factory=RemainingRounds)
    sampling: int = 0
    seconds: float = 0.0
    """Of evidence and sampling, as far as known."""

    @property
    def nothing(self) -> bool:
        """Whether the next step certainly finds nothing to do."""
        return not self.evidence and not self.launches.most and not self.sampling

    @property
    def steps(self) -> tuple[int, int]:
        """(minimum, maximum)."""
        others = self.evidence + self.sampling
        return others + self.launches.least, others + self.launches.most

    @property
    def seconds_at_most(self) -> float:
        return self.seconds + self.launches.seconds


def left_of(rounds: Rounds) -> RemainingWork:
    evidence = [len(run.evidence_left) for run in rounds.runs]
    sampling = [len(_sampling_left(run)) for run in rounds.runs]
    seconds = sum(
        count * _evidence_seconds(run) + sampled * SECONDS
        for run, count, sampled in zip(rounds.runs, evidence, sampling, strict=True)
    )
    return RemainingWork(sum(evidence), rounds.left(), sum(sampling), seconds)


def _evidence_seconds(run: Measuring) -> float:
    """Return the mean time of finished evidence processes, or the estimate for emulation."""
    if taken := [entry.seconds for entry in run.journal.entries() if entry.kind == "evidence"]:
        return sum(taken) / len(taken)
    return 0.0 if run.target.timings_are_latency else run.emulated_seconds


def _sampling_left(run: Measuring) -> list[Step]:
    """Return the missing steps if sampling was requested. Only the kit's own runner can sample; if times are
    not latencies, the series with evidence are sampled."""
    if not run.config.schedule.sample:
        return []
    steps = run.steps_of(0) if run.target.timings_are_latency else run.schedule.evidence
    found = {step.series for step in steps if run.config.experiment(step.series.experiment).runner is None}
    return run.missing(Step("sampled", series) for series in sorted(found - run.failed, key=str))


def sample(run: Measuring) -> Iterator[Piece]:
    steps, latencies = _sampling_left(run), run.target.timings_are_latency
    if steps:
        run.progress.stage("sampling threads")
    for number, step in enumerate(steps, start=1):
        # In a warm-up execution the runner counts the backend's clock reads per operator, so always make one.
        warmup = max(1, run.config.experiment(step.series.experiment).warmup) if latencies else 1
        runs = _runs_in(run, step.series, SECONDS) if latencies else None
        run.do(step, runs=runs or 1, warmup=warmup, sample_hz=HZ)
        run.progress.advance(number, len(steps), str(step.series))
        yield Piece("sampling", str(step.series))


def _runs_in(run: Measuring, series: Series, seconds: float) -> int | None:
    """Return how many inferences take `seconds`; None if no latency is known."""
    measured = run.journal.latencies_ms(series, run.journal.rounds_of(series))
    every = [latency for latencies in measured for latency in latencies]
    latency_ms = statistics.median(every) if every else None
    return min(math.ceil(seconds * 1e3 / latency_ms), _MOST_SAMPLED_RUNS) if latency_ms else None
