"""A session: begins or continues runs on one target, measures what is missing, and computes their figures.

After each process or launch its results are in the run directory: a killed process or a lost machine costs
one of them, and the next session goes on, from any host that reaches the same device.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace

from model_profiling.config.remarks import Diagnostic
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import listing
from model_profiling.core.progress import Progress, Silent
from model_profiling.runs.begin import Start, begin, check_directory
from model_profiling.runs.feeding import checked_feed, one_method
from model_profiling.runs.figures import Measured, compute_figures
from model_profiling.runs.folders import locked
from model_profiling.runs.journal import Step
from model_profiling.runs.measuring import Measuring
from model_profiling.runs.rounds import Rounds
from model_profiling.runs.schedule import make_order
from model_profiling.targets import Target
from model_profiling.targets.machine_lock import measuring_alone, working_beside

Wish = tuple[ProfileConfig, Start]


def measure_runs(
    wishes: Sequence[Wish],
    target: Target,
    progress: Progress | None = None,
    until: contextlib.ExitStack | None = None,
) -> tuple[Measured, ...]:
    """Begin or continue the run of each config in its own output_root and measure all that is missing; the
    programs of several take turns, and their schedules must be alike. However it ends, each manifest says
    how, and all results are kept. A failing program is a result; any other failure (the machine is gone, the
    disk is full) is raised. Nothing is touched before the target is ready. The directories and this machine
    are kept for it alone, with `until` also until that is closed."""
    progress, runs = progress or Silent(), list[Measuring]()
    with contextlib.ExitStack() as locks:
        feeds, configs = [], []
        for wish, start in wishes:
            config = wish.model_copy(update={"method": one_method(wish.model, wish.method)})
            configs.append(config)
            feeds.append(checked_feed(config))
            locks.enter_context(locked(config.output_root))
            make_order(config, 0, latencies=target.timings_are_latency, only=start.only)  # refuses names
            check_directory(config.output_root)
        progress.stage("preparing the runner")
        target.prepare()
        try:
            with target.held_ready():
                remarks = _keep_machine(locks, wishes, target, progress)
                before = target.facts()
                for config, (_, start), fed in zip(configs, wishes, feeds, strict=True):
                    runs.append(begin(config, target, before, start, fed=fed, progress=progress))
                # Only now is there a run to record it in; if `begin` fails, the caller reports it.
                _remark(runs, remarks)
                for run in runs:
                    run.gather_evidence()
                rounds = Rounds(tuple(runs), across=len(runs) > 1)
                while not rounds.ended():
                    rounds.measure_next()
                for run in runs:
                    sample(run)
                after = target.facts()
        except BaseException as reason:
            _remark(runs, _notes(target) if runs else ())
            for run in runs:
                with contextlib.suppress(InputError):  # on a full disk, what ended the run matters more
                    run.write("interrupted", type(reason).__name__, reason)
            raise
        _remark(runs, _notes(target))
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


def _notes(target: Target) -> list[Diagnostic]:
    """Return what a person should know of settings that were changed and restored."""
    return [Diagnostic(None, "settings", note) for note in target.take_notes()]


def _remark(runs: Sequence[Measuring], remarks: Sequence[Diagnostic]) -> None:
    for run in runs:
        run.warnings += remarks


def _keep_machine(
    until: contextlib.ExitStack, wishes: Sequence[Wish], target: Target, progress: Progress
) -> list[Diagnostic]:
    """Wait until nobody else measures on this machine, and let nobody disturb what is measured here; return
    why that cannot be had, if so. Other machines are held by their target."""
    if not target.is_here:
        return []
    alone, words = target.timings_are_latency, wishes[0][1].command_line
    programs = listing(dict.fromkeys(config.model.stem for config, _ in wishes))
    command = f" ({' '.join(words)})" if words else ""
    what = f"{'measures' if alone else 'emulates'} {programs}{command}"
    lock = measuring_alone if alone else working_beside
    if problem := until.enter_context(lock(what, waiting=progress.stage)):
        seen = f"other measurements on this machine are not noticed: {problem.problem}"
        return [Diagnostic(None, "unlocked", seen, problem.fix)]
    return []


# After the rounds, if requested, each experiment runs once more, alone, to sample where operators spend their
# time. The times of these runs are not latencies.

HZ = 1000
"""Per thread; `bench/sampling_cost.py` measures the cost."""
SECONDS = 3.0
_MOST_SAMPLED_RUNS = 20_000


def sample(run: Measuring) -> None:
    """Sample each series with a latency; if times are not latencies, those with evidence. Only the kit's own
    runner can sample."""
    if not run.config.schedule.sample:
        return
    latencies = run.target.timings_are_latency
    steps = run.steps_of(0) if latencies else run.order.evidence
    experiments = {step.series: run.config.experiment(step.series.experiment) for step in steps}
    own = (series for series, each in experiments.items() if each.runner is None and series not in run.failed)
    missing = run.missing(Step("sampled", series) for series in sorted(own, key=str))
    if missing:
        run.progress.stage("sampling threads")
    for number, step in enumerate(missing, start=1):
        # In a warm-up execution the runner counts the backend's clock reads per operator, so always make one.
        warmup, runs = max(1, experiments[step.series].warmup) if latencies else 1, 1
        measured = run.journal.latencies_ms(step.series, run.journal.rounds_of(step.series))
        every = [latency for of_round in measured for latency in of_round]
        if latencies and every:
            runs = min(math.ceil(SECONDS * 1e3 / statistics.median(every)), _MOST_SAMPLED_RUNS)
        run.do(step, runs=runs, warmup=warmup, sample_hz=HZ)
        run.write("running")
        run.progress.advance(number, len(missing), str(step.series))
