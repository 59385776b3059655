"""A run that is under way and measured piece by piece: whoever holds it decides when the next one is due.

Several runs can be open on one target at once, so that their launches meet the same hours of a machine. What
a piece left is in the run directory when `step` returns: a process that is killed, or a machine that is lost,
costs one piece, and `open_run` with `resume` goes on, there or wherever else the same device is reached.
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
    """A target made ready once, for every run that is measured on it until it is closed: the runner is there,
    its settings are set, and what it told of itself before is the same for all."""

    def __init__(self, target: Target, progress: Progress | None = None) -> None:
        self.target = target
        self.runs: list[OpenRun] = []
        """Those that are measured on it now."""
        self._set = contextlib.ExitStack()
        self._notes: list[Diagnostic] = []
        self._remade: list[Diagnostic] = []
        (progress or Silent()).stage("preparing the runner")
        target.prepare()
        if isinstance(target, TunedTarget):
            self._set.enter_context(target.held_ready())

    @cached_property
    def before(self) -> MachineFacts:
        """The machine before anything was measured on it."""
        return self.target.facts()

    def notes(self) -> list[Diagnostic]:
        """What became of its settings so far; of putting them back it can tell only when it is closed."""
        if isinstance(self.target, TunedTarget):
            self._notes += (Diagnostic(None, "settings", note) for note in self.target.take_notes())
        return list(self._notes)

    def remade(self) -> list[Diagnostic]:
        """What had to be made again before it could be used."""
        self._remade += (Diagnostic(None, "cache", note) for note in take_repair_notes())
        return list(self._remade)

    def close(self) -> None:
        """Put back what was set; runs that were not finished are some to continue. Safe to repeat."""
        try:
            self._set.close()
        finally:
            self._end_runs(PutAside())

    def give_up(self, reason: BaseException) -> None:
        """It cannot be used any more: say why in every run that is open on it. If it cannot be put back
        either, that is said, and raised, instead."""
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
    """Begin or continue the run of `config` and hold its directory until it is closed.

    A `ReadyTarget` may have several runs open; any other target is made ready for this one alone.
    """
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
    """Several configs, each with its own output_root, all of whose programs take turns with each other.

    Their schedules must be alike. The caller holds the lock of each directory. Nothing there is touched
    before the target is ready.
    """
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
    """Run several configs, each into its own output_root, with all their programs taking turns.

    However it ends, each manifest says how, and everything measured until then is kept.
    """
    with open_together(asked, target, progress) as runs:
        while runs.step() is not None:
            pass
        return runs.finish_all()


class OpenRun:
    """One run, or several whose programs take turns. Left by an exception, it says in its manifest what ended
    it; everything measured until then is kept."""

    def __init__(
        self,
        asked: Sequence[tuple[ProfileConfig, Start]],
        ready: ReadyTarget,
        progress: Progress,
        *,
        own: bool,
    ) -> None:
        """Settle what is in the directories, and say in each that a session has begun."""
        self.held = contextlib.ExitStack()
        """What is let go when it is closed."""
        self._ready, self._own = ready, own
        self._open, self._measured = True, False
        self._runs: list[Measuring] = []
        ready.runs.append(self)
        with self._kept():
            for config, way in asked:
                self._runs.append(begin(config, ready.target, ready.before, way, progress))
            # Whoever fails before there is a run to keep it in says it.
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
        """Measure the next piece, or return None when none is left. A program that fails is a result; where
        something else does (the machine is gone, the disk is full), the run is given up and that is raised.
        """
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
        """What is still to be measured, as far as can be told now."""
        return left_of(self._rounds) if self._open and not self._measured else RemainingWork()

    def finish(self) -> Measured:
        """Of one run: see `finish_all`."""
        (measured,) = self.finish_all()
        return measured

    def finish_all(self) -> tuple[Measured, ...]:
        """Measure no more, and compute what each run came to. Its directory stays held until it is closed."""
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
        """Say in each run what ended it, so that it can be continued, and let go of everything. Safe to
        repeat: the first reason counts."""
        if self._own and self._open:
            self._ready.give_up(reason)
        self.end(reason)

    def end(self, reason: BaseException) -> None:
        """Nothing more is measured because of `reason`; the target is whoever made it ready's to care for."""
        if not self._open:
            return
        self._open = False
        if self in self._ready.runs:
            self._ready.runs.remove(self)
        if self._runs:  # with no record to keep it, the user is told
            self._remark(self._ready.notes())
        for run in self._runs:
            with contextlib.suppress(InputError):  # a full disk: what ended the run matters more
                run.interrupted(reason)
        self.held.close()

    def close(self) -> None:
        """Let go of the directory; a run that was not finished is one to continue."""
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
        """What ends this run in the middle of something is kept in it."""
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


# In which order the runs of one device get their pieces, when several are measured there at once.
# First every run gathers its evidence, which nobody times; then each round gives every run one launch, in an
# order drawn from the seed and the round's number. So whatever changes slowly on the device (heat, clocks,
# other work) meets all of them alike. What runs long and alone (energy, sampling) waits until no launch is
# left that it could heat up. Who has ended, well or not, drops out, and the others go on.

_Phase = Literal["evidence", "launches", "afterwards"]


@dataclass(slots=True)
class Interleaved:
    """Whose turn it is. `round` is where to go on: a sweep that is continued draws no order twice."""

    seed: int
    round: int = 0
    _phases: dict[str, _Phase] = field(default_factory=dict)
    """Of every run that has not ended, in the order they joined."""
    _turns: list[str] = field(default_factory=list)
    """Those that this round has not visited yet, in its order."""

    def join(self, runs: Iterable[str]) -> None:
        """These are measured, too: their evidence at once, their launches from the next round on."""
        for run in runs:
            self._phases.setdefault(run, "evidence")

    def next(self) -> str | None:
        """The run to visit; the same one until something is said of it, so that a visit that was lost is made
        again. None when all have ended."""
        if found := self._first_in("evidence"):
            return found
        if not self._turns:
            self._draw()
        return self._turns[0] if self._turns else self._first_in("afterwards")

    def visited(self, run: str, left: RemainingWork) -> None:
        """One piece of it was measured, and so much is left."""
        phase = _phase_of(left)
        if phase is None or run not in self._phases:
            self.leave(run)
            return
        self._phases[run] = phase
        if run in self._turns:
            self._turns.remove(run)

    def leave(self, run: str) -> None:
        """It has ended or cannot go on, which is nothing to the others."""
        self._phases.pop(run, None)
        if run in self._turns:
            self._turns.remove(run)

    @property
    def runs(self) -> tuple[str, ...]:
        """Those that have not ended."""
        return tuple(self._phases)

    def _first_in(self, phase: _Phase) -> str | None:
        return next((run for run, its in self._phases.items() if its == phase), None)

    def _draw(self) -> None:
        turns = sorted(run for run, its in self._phases.items() if its == "launches")
        if turns:
            random.Random(f"{self.seed}/{self.round}").shuffle(turns)
            self._turns, self.round = turns, self.round + 1


def _phase_of(left: RemainingWork) -> _Phase | None:
    """What a run does next; None where nothing is left."""
    if left.evidence:
        return "evidence"
    if left.launches.most:
        return "launches"
    return "afterwards" if left.afterwards else None
