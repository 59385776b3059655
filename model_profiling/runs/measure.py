"""Measures runs on one target: begins or continues them, measures what is missing, computes their figures.

After each process or launch its results are in the run directory: a killed process or a lost machine costs
one of them, and the next session goes on, from any host that reaches the same device. Programs of several
runs take turns in the same launches, and each run keeps its own part. Every decision (go on, precise enough,
time spent) depends only on the journals, so a continued run decides the same.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from model_profiling.config.names import FAILED_LAUNCH
from model_profiling.config.series import Diagnostic, Series
from model_profiling.config.settings import USUAL_ROUNDS, ProfileConfig, Schedule
from model_profiling.core import files
from model_profiling.core.errors import InputError, RunError
from model_profiling.core.formatting import listing
from model_profiling.core.stdio import current_progress
from model_profiling.runs.begin import Start, begin, check_directory
from model_profiling.runs.feeding import checked_feed, one_method
from model_profiling.runs.figures import Measured, compute_figures
from model_profiling.runs.folders import locked
from model_profiling.runs.journal import Entry, RunStep, seconds_of
from model_profiling.runs.manifest import Ended
from model_profiling.runs.measuring import Measuring, scratch_folder
from model_profiling.runs.schedule import TRIAL, Pace, make_order, plan, plan_kept, with_turns
from model_profiling.runs.times import CLOCK_STEP_MS, shared_launches
from model_profiling.statistics.measure import Rule
from model_profiling.statistics.speedup import PRECISION, as_launches, precise_enough
from model_profiling.targets import LockstepOutcome, Target
from model_profiling.targets.job import LOG, LockstepJob
from model_profiling.targets.machine_lock import measuring_alone, working_beside


def measure_runs(
    configs: Sequence[ProfileConfig],
    target: Target,
    start: Start,
    until: contextlib.ExitStack | None = None,
) -> tuple[Measured, ...]:
    """Begin or continue the run of each config in its own output_root and measure all that is missing; the
    programs of several take turns, and their schedules must be alike. However it ends, each manifest says
    how, and all results are kept. A failing program is a result; any other failure (the machine is gone, the
    disk is full) is raised. Nothing is touched before the target is ready. The directories and this machine
    are kept for it alone, with `until` also until that is closed."""
    runs = list[Measuring]()
    with contextlib.ExitStack() as locks:
        configs = [
            config.model_copy(update={"method": one_method(config.model, config.method)})
            for config in configs
        ]
        feeds = [checked_feed(config) for config in configs]
        for config in configs:
            locks.enter_context(locked(config.output_root))
            make_order(config, 0, latencies=target.timings_are_latency, only=start.only)  # refuses names
            check_directory(config.output_root)
        current_progress().stage("preparing the runner")
        target.prepare()
        try:
            with target.held_ready():
                remarks = _keep_machine(locks, configs, target, start)
                before = target.facts()
                for config, fed in zip(configs, feeds, strict=True):
                    runs.append(begin(config, target, before, start, fed=fed))
                    runs[-1].warnings += remarks
                for run in runs:
                    run.gather_evidence()
                rounds = Rounds(tuple(runs))
                while not rounds.ended():
                    rounds.measure_next()
                for run in runs:
                    run.sample()
                after = target.facts()
        except BaseException as reason:
            _note_settings(runs, target)
            for run in runs:
                with contextlib.suppress(InputError):  # on a full disk, what ended the run matters more
                    run.write("interrupted", type(reason).__name__, reason)
            raise
        _note_settings(runs, target)
        for run in runs:
            run.manifest = replace(run.manifest, machine=replace(run.manifest.machine, after=after))
            run.write("analysing", "done")
            shutil.rmtree(run.place.work, ignore_errors=True)
        measured = tuple(
            compute_figures(run.place, run.config, run.journal, run.manifest, run.moved) for run in runs
        )
        if until is not None:
            until.push(locks.pop_all())
        return measured


def _note_settings(runs: Sequence[Measuring], target: Target) -> None:
    """Record what was changed on the target and restored; without a run the caller reports it."""
    notes = [Diagnostic(None, "settings", note) for note in target.take_notes()] if runs else []
    for run in runs:
        run.warnings += notes


def _keep_machine(
    until: contextlib.ExitStack,
    configs: Sequence[ProfileConfig],
    target: Target,
    start: Start,
) -> list[Diagnostic]:
    """Wait until nobody else measures on this machine, and let nobody disturb what is measured here; return
    why that cannot be had, if so. Other machines are held by their target."""
    if not target.is_here:
        return []
    alone = target.timings_are_latency
    programs = listing(dict.fromkeys(config.model.stem for config in configs))
    command = f" ({' '.join(start.command_line)})" if start.command_line else ""
    what = f"{'measures' if alone else 'emulates'} {programs}{command}"
    lock = measuring_alone if alone else working_beside
    if problem := until.enter_context(lock(what)):
        seen = f"other measurements on this machine are not noticed: {problem.problem}"
        return [Diagnostic(None, "unlocked", seen, problem.fix)]
    return []


# Rounds: in launches whose programs take turns, or one process at a time.

_INTERRUPTED_LOOK = 2
"""Launches after which measuring ends if nothing can be compared because of other programs."""
_ATTEMPTS = 2
"""A launch that was ended from outside is worth another try; one that fails twice will fail again."""
_StepOfRun = tuple[Measuring, RunStep]
_Side = tuple[Measuring, Series]


@dataclass(slots=True)
class Rounds:
    runs: tuple[Measuring, ...]
    _paces: dict[object, Pace] = field(default_factory=dict)
    _fit: dict[object, str | None] = field(default_factory=dict)
    """Why programs cannot take turns; asked once, because free memory changes all the time."""
    _in_turns: bool = True
    _planned: bool = False
    _next: int = 0
    """The round to measure next."""

    def __post_init__(self) -> None:
        # A continued run goes on as it began: if it could not take turns then, it will not now.
        measured = [entry for run in self.runs for entry in run.timed_entries]
        self._in_turns = not measured or any(entry.launch for entry in measured)
        self._planned = any(run.steps_of(0) for run in self.runs)
        if self._planned:
            stems = listing(dict.fromkeys(run.place.model_stem for run in self.runs))
            turns = " in turns" if len(self.runs) > 1 else ""
            current_progress().stage(f"measuring {stems}{turns}")

    def ended(self) -> bool:
        """Whether nothing is left to measure; each run then records why."""
        if not self._planned:
            return True
        # A round that was begun is always finished.
        begun = self._next < max(run.rounds_begun for run in self.runs)
        ended = None if begun else self._enough(self._next)
        for run in self.runs if ended else ():
            run.ended = ended
        return ended is not None

    def measure_next(self) -> None:
        """Measure what is missing of the next round: in launches, and alone what cannot take turns."""
        number, in_turns, again = self._next, self._in_turns, False
        if not self._done(number):
            failed = [set(run.failed) for run in self.runs]
            alone: dict[_StepOfRun, str] = {}
            for group in _groups(self._steps(number)) if in_turns else ():
                if reason := self._take_turns(group):
                    alone |= dict.fromkeys(group, reason)
            steps = self._steps(number)
            for run, step in steps:
                if step.series not in run.failed and ((run, step) in alone or not in_turns):
                    run.do(step)
            kits_own = any(_kits_own(run, step) for run, step in alone)
            if [run.failed for run in self.runs] != failed:
                # A program that fails ends the launch; the others can do without it.
                again = in_turns and kits_own
            elif alone:
                for (run, step), reason in sorted(alone.items(), key=lambda item: item[0][1].key):
                    seen = f"measured alone, one process after another, not in turns: {reason}"
                    run.warn(Diagnostic(step.series, "no_lockstep", seen))
                # If each program runs alone, taking turns is what failed, and it would fail again.
                self._in_turns = not kits_own and len(alone) < len(steps)
            for run in self.runs:
                run.write("running")
        self._show(number + 1)
        # Never mix rounds and launches: if programs cannot take turns any more, start again at round 0.
        self._next = 0 if in_turns != self._in_turns else number + (not again)

    @property
    def _settings(self) -> Schedule:
        return self.runs[0].config.schedule

    @property
    def _most(self) -> int:
        """The most launches, or the number of rounds if every process runs alone."""
        return self._settings.most_rounds if self._in_turns else self._settings.rounds or USUAL_ROUNDS

    @property
    def _spent(self) -> float:
        """Seconds of measuring, the minimum over runs: one may have been measured alone before."""
        return min(seconds_of(run.timed_entries) for run in self.runs)

    def _show(self, rounds: int) -> None:
        progress, spent, limit = current_progress(), self._spent, self._settings.time_limit_s
        if self._in_turns and spent <= limit:
            progress.advance(round(spent), round(limit), f"launch {rounds}, {spent:.0f} of {limit:g} s")
        else:
            # A slow model gets as many launches as a verdict needs, whatever its budget.
            least = max(rounds, self._settings.min_rounds if self._in_turns else self._most)
            word = "launch" if self._in_turns else "round"
            progress.advance(rounds, least, f"{word} {rounds} of {least}, {spent:.0f} s")

    def _done(self, number: int) -> bool:
        """Whether every process of a round is measured and, in lockstep, in the same launch. A round cut
        short is repeated as a whole: its processes must have run side by side."""
        steps = self._steps(number)
        if not all(run.journal.done(step) for run, step in steps):
            return False
        for group in _groups(steps):
            launches = {entry.launch for run, step in group if (entry := run.journal.entry(step))}
            if len(launches) > 1 or (None not in launches) != (self._in_turns and _kits_own(*group[0])):
                return False
        return True

    def _steps(self, number: int) -> list[_StepOfRun]:
        """Return the steps of a round in the drawn order, shuffled across runs."""
        steps = [(run, step) for run in self.runs for step in run.steps_of(number)]
        if len(self.runs) > 1:
            random.Random(f"{self.runs[0].order.seed}/{number}").shuffle(steps)
        return steps

    def _take_turns(self, group: Sequence[_StepOfRun]) -> str | None:
        """Measure a group in one launch; return why that was impossible, or None. If its length is not known
        yet, a launch that is not kept shows how long a turn takes."""
        first, step = group[0]
        jobs = [run.job(step) for run, step in group]
        programs = tuple(sorted((str(run.place.path), step.series) for run, step in group))
        if programs not in self._fit:
            self._fit[programs] = first.target.why_not_lockstep(jobs)
        reason, attempts = self._fit[programs], 0
        while attempts < _ATTEMPTS and self._fit[programs] is None:
            turns = plan_kept(first.journal, step.series, step.kind)
            if turns is None and programs in self._paces:
                runs = max(run.config.experiment(one.series.experiment).runs for run, one in group)
                alike = [
                    launch for launch in _groups(self._steps(step.round)) if launch[0][1].kind == step.kind
                ]
                limit, most = self._settings.time_limit_s / len(alike), self._settings.rounds
                traced = runs if step.kind == "traced" else None
                turns = plan(self._paces[programs], len(group), limit, most, traced)
            seed = f"{first.order.seed}/{step.round}/{step.kind}" if turns else f"{first.order.seed}/trial"
            launch = LockstepJob(
                jobs=tuple(jobs if turns else (replace(job, etdump=False) for job in jobs)),
                cycles=(turns or TRIAL).cycles,
                turn_length=(turns or TRIAL).turn_length,
                order_seed=random.Random(seed).getrandbits(32),
                timeout_s=self._settings.timeout_s,
                cpu_affinity=jobs[0].cpu_affinity,
            )
            blanks = [run.blank(step) for run, step in group]
            began = time.monotonic()
            try:
                with _scratch(first) as scratch:
                    outcome = first.target.execute_lockstep(launch, scratch, "process")
                    if turns is not None:
                        self._keep(group, blanks, outcome, began)
                        return None
            except RunError as problem:
                reason, attempts = problem.problem, attempts + 1
            else:
                self._paces[programs] = Pace.of(outcome, time.monotonic() - began)
        return reason

    def _keep(
        self, group: Sequence[_StepOfRun], blanks: Sequence[Entry], outcome: LockstepOutcome, began: float
    ) -> None:
        """Keep the files of a launch, then write its lines: those of one run together."""
        name = secrets.token_hex(8)
        entries = [
            with_turns(run.keep(blank, own), outcome, child, name)
            for child, ((run, _), blank, own) in enumerate(zip(group, blanks, outcome.outcomes, strict=True))
        ]
        seconds = round(time.monotonic() - began, 4)
        for run in self.runs:
            own = [
                replace(entry, seconds=seconds)
                for (owner, _), entry in zip(group, entries, strict=True)
                if owner is run
            ]
            if own:
                run.journal.append(*own)

    @property
    def _compared(self) -> list[tuple[_Side, _Side]]:
        """The pairs of each run, and series of different runs with the same number of threads."""
        own = [((run, pair.baseline), (run, pair.candidate)) for run in self.runs for pair in run.pairs]
        timed = [
            (run, step.series) for run in self.runs for step in run.steps_of(0) if step.kind == "untraced"
        ]
        return own + [
            (ours, theirs)
            for ours, theirs in combinations(timed, 2)
            if ours[0] is not theirs[0] and ours[1].threads == theirs[1].threads
        ]

    def _enough(self, rounds: int) -> Ended | None:
        """Return why measuring ends after this many rounds, if it does."""
        if rounds >= self._most:
            return "rounds"
        settings, pairs = self._settings, self._compared
        # If other programs make every comparison impossible, more launches tell no more.
        looked = self._in_turns and rounds >= _INTERRUPTED_LOOK and bool(pairs)
        if looked and all(_rule(*pair).measure == "wall time, interrupted" for pair in pairs):
            return "busy"
        if rounds < settings.min_rounds:
            return None
        if pairs and all(self._precise(*pair, rounds) for pair in pairs):
            return "precision"
        limit = settings.time_limit_s if self._in_turns else settings.budget_s
        if limit is not None and self._spent >= limit:
            return "budget"
        uncompared = self._in_turns and settings.rounds is None and not pairs
        return "nothing compared" if uncompared else None

    def _precise(self, ours: _Side, theirs: _Side, rounds: int) -> bool:
        settings, analysis = self._settings, self.runs[0].config.analysis
        rule = _rule(ours, theirs)
        sides = shared_launches(*(run.journal.turns_ms(series, rule=rule) for run, series in (ours, theirs)))
        if not sides[0]:
            if settings.precision is None:
                return False
            first, second = (
                as_launches(run.journal.latencies_ms(series, rounds, rule=rule))
                for run, series in (ours, theirs)
            )
            sides = first, second
        return precise_enough(
            *sides,
            settings.precision or PRECISION,
            settings.min_rounds,
            confidence=analysis.confidence,
            resolution=CLOCK_STEP_MS,
        )


def _rule(ours: _Side, theirs: _Side) -> Rule:
    first, second = (run.journal.rule(series.threads) for run, series in (ours, theirs))
    return first.together(second)


@contextlib.contextmanager
def _scratch(run: Measuring) -> Iterator[Path]:
    """A folder for a launch; if the launch fails, its log is kept."""
    with scratch_folder(run.place) as scratch:
        try:
            yield scratch
        except RunError:
            if (log := scratch / f"process{LOG}").is_file():
                files.move(log, run.place.path / FAILED_LAUNCH)
            raise


def _groups(steps: Sequence[_StepOfRun]) -> list[list[_StepOfRun]]:
    """Group steps that can share a launch: the kit's runner, the same CPUs, all traced or none."""
    groups: dict[object, list[_StepOfRun]] = {}
    for run, step in steps:
        affinity = run.config.experiment(step.series.experiment).cpu_affinity
        groups.setdefault((step.kind, _kits_own(run, step), affinity), []).append((run, step))
    return list(groups.values())


def _kits_own(run: Measuring, step: RunStep) -> bool:
    return run.config.experiment(step.series.experiment).runner is None
