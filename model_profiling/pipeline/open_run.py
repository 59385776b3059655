"""A run that is measured piece by piece; the caller decides when to measure the next piece.

Several runs can be open on one target, so that their launches are spread over the same hours. The results of
a piece are in the run directory when `step` returns: a killed process or a lost machine costs one piece, and
`open_run` with `resume` goes on, from any host that reaches the same device.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from model_profiling.config.reading import ProfileConfig
from model_profiling.core.errors import InputError
from model_profiling.core.progress import Progress, Silent
from model_profiling.pipeline.measured import Measured, refresh
from model_profiling.pipeline.measuring import Measuring, Piece, PutAside
from model_profiling.pipeline.remaining import RemainingWork, left_of, measure_energy, sample
from model_profiling.pipeline.rounds import Rounds
from model_profiling.pipeline.schedule import make_schedule
from model_profiling.pipeline.start import Start, begin, check_directory
from model_profiling.run import Metrics
from model_profiling.run.folders import locked
from model_profiling.run.remarks import Diagnostic
from model_profiling.runner.cache import take_repair_notes
from model_profiling.targets import MachineFacts, Target, TunedTarget


class ReadyTarget:
    """A target prepared once for every run measured on it: the runner is installed, its settings are made,
    and all runs share the facts read before."""

    def __init__(self, target: Target, progress: Progress | None = None) -> None:
        self.target = target
        self.runs: list[OpenRun] = []
        """Runs that are open on it."""
        self._set = contextlib.ExitStack()
        self._notes: list[Diagnostic] = []
        self._remade: list[Diagnostic] = []
        (progress or Silent()).stage("preparing the runner")
        target.prepare()
        if isinstance(target, TunedTarget):
            self._set.enter_context(target.held_ready())

    @cached_property
    def before(self) -> MachineFacts:
        return self.target.facts()

    def notes(self) -> list[Diagnostic]:
        """Return notes about its settings so far; `close` may add some about restoring them."""
        if isinstance(self.target, TunedTarget):
            self._notes += (Diagnostic(None, "settings", note) for note in self.target.take_notes())
        return list(self._notes)

    def remade(self) -> list[Diagnostic]:
        """Return what had to be built again before use."""
        self._remade += (Diagnostic(None, "cache", note) for note in take_repair_notes())
        return list(self._remade)

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
    """Begin or continue the run of `config`, and lock its directory until it is closed. A `ReadyTarget` may
    have several runs open; any other target is prepared for this run alone."""
    with contextlib.ExitStack() as lock:
        lock.enter_context(locked(config.output_root))
        run = open_together([(config, start or Start())], target, progress)
        run.held = lock.pop_all()
    return run


def open_together(
    asked: Sequence[tuple[ProfileConfig, Start]],
    target: Target | ReadyTarget,
    progress: Progress | None = None,
) -> OpenRun:
    """Open several configs, each with its own output_root, whose programs all take turns. Their schedules
    must be alike, and the caller holds the locks. Nothing is touched before the target is ready."""
    progress = progress or Silent()
    bare = target.target if isinstance(target, ReadyTarget) else target
    for config, way in asked:
        make_schedule(config, 0, latencies=bare.timings_are_latency, only=way.only)  # refuses unknown names
        check_directory(config.output_root, resume=way.resume, force=way.force)
    ready = target if isinstance(target, ReadyTarget) else ReadyTarget(target, progress)
    return OpenRun(asked, ready, progress, own=ready is not target)


def measure_together(
    asked: Sequence[tuple[ProfileConfig, Start]], target: Target, *, progress: Progress | None = None
) -> tuple[Measured, ...]:
    """Run several configs, each into its own output_root, with all their programs taking turns. However it
    ends, each manifest says how, and all measurements so far are kept."""
    with open_together(asked, target, progress) as runs:
        while runs.step() is not None:
            pass
        return runs.finish_all()


class OpenRun:
    """One run, or several whose programs take turns. If an exception ends it, the manifest says why."""

    def __init__(
        self,
        asked: Sequence[tuple[ProfileConfig, Start]],
        ready: ReadyTarget,
        progress: Progress,
        *,
        own: bool,
    ) -> None:
        """Deal with earlier runs in the directories, and record in each that a session has begun."""
        self.held = contextlib.ExitStack()
        """Released on close."""
        self._ready, self._own = ready, own
        self._open, self._measured = True, False
        self._runs: list[Measuring] = []
        ready.runs.append(self)
        with self._kept():
            for config, way in asked:
                self._runs.append(begin(config, ready.target, ready.before, way, progress))
            # Only now is there a run to record it in; if `begin` fails, the caller reports it.
            self._remark(ready.remade())
            self._rounds = Rounds(tuple(self._runs), across=len(self._runs) > 1)
            self._pieces = self._measure()

    def _measure(self) -> Iterator[Piece]:
        for run in self._runs:
            yield from run.gather_evidence()
        yield from self._rounds.measure()
        for run in self._runs:
            yield from measure_energy(run)
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
        self.held.close()

    def close(self) -> None:
        """Release the directory; an unfinished run can be continued."""
        if self._own:
            self._ready.close()
        self.end(PutAside())
        self.held.close()

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


# The order in which several runs on one device get their pieces. First every run collects its evidence, which
# is not timed. Then each round gives every run one launch, in an order drawn from the seed and the round's
# number, so that slow changes of the device (heat, clocks, other work) affect all alike. Energy and sampling
# run long and alone, so they wait until no launch is left that they could heat up.

_Phase = Literal["evidence", "launches", "afterwards"]


@dataclass(slots=True)
class Interleaved:
    """Decides which run is next. A continued sweep passes `round`, so that no order is drawn twice."""

    seed: int
    round: int = 0
    _phases: dict[str, _Phase] = field(default_factory=dict)
    """Every run that has not ended, in the order they joined."""
    _turns: list[str] = field(default_factory=list)
    """Runs still to visit in this round, in order."""

    def join(self, runs: Iterable[str]) -> None:
        """Add runs: their evidence comes at once, their launches from the next round on."""
        for run in runs:
            self._phases.setdefault(run, "evidence")

    def next(self) -> str | None:
        """Return the run to visit, or None if all have ended. It stays the same until `visited` or `leave` is
        called, so that a lost visit is repeated."""
        if found := self._first_in("evidence"):
            return found
        if not self._turns:
            self._draw()
        return self._turns[0] if self._turns else self._first_in("afterwards")

    def visited(self, run: str, left: RemainingWork) -> None:
        """Record that one piece of `run` was measured, and what is left."""
        phase = _phase_of(left)
        if phase is None or run not in self._phases:
            self.leave(run)
            return
        self._phases[run] = phase
        if run in self._turns:
            self._turns.remove(run)

    def leave(self, run: str) -> None:
        """Remove a run that has ended or cannot go on."""
        self._phases.pop(run, None)
        if run in self._turns:
            self._turns.remove(run)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._phases)

    def _first_in(self, phase: _Phase) -> str | None:
        return next((run for run, its in self._phases.items() if its == phase), None)

    def _draw(self) -> None:
        turns = sorted(run for run, its in self._phases.items() if its == "launches")
        if turns:
            random.Random(f"{self.seed}/{self.round}").shuffle(turns)
            self._turns, self.round = turns, self.round + 1


def _phase_of(left: RemainingWork) -> _Phase | None:
    if left.evidence:
        return "evidence"
    if left.launches.most:
        return "launches"
    return "afterwards" if left.afterwards else None
