"""What is measured after the rounds, and what of a run is still to be measured, as far as its journal tells.

After the rounds each experiment runs once more, long and alone: for the energy of one inference where a
phone's fuel gauge can be read (turns are far too short for a gauge), and to see where the time of operators
goes. What it takes then is not a latency.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from model_profiling.core.hints import document
from model_profiling.pipeline.measuring import Measuring, Piece
from model_profiling.pipeline.rounds import RemainingRounds, Rounds
from model_profiling.pipeline.schedule import emulated_seconds, experiment_of
from model_profiling.run.journal import Step
from model_profiling.run.remarks import Diagnostic
from model_profiling.run.series import Series
from model_profiling.targets.protocol import MeteredTarget

HZ = 1000
"""For each thread; `bench/sampling_cost.py` shows what it costs."""
SECONDS = 3.0
_MOST_METERED_RUNS, _MOST_SAMPLED_RUNS = 1_000_000, 20_000


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Pieces and seconds; an estimate, which every piece makes better."""

    evidence: int = 0
    launches: RemainingRounds = field(default_factory=RemainingRounds)
    afterwards: int = 0
    """For energy and for sampling."""
    seconds: float = 0.0
    """Of evidence and of what comes afterwards, where that can be told."""

    @property
    def nothing(self) -> bool:
        """Whether it is certain that the next step finds nothing to do."""
        return not self.evidence and not self.launches.most and not self.afterwards

    @property
    def steps(self) -> tuple[int, int]:
        """At least, at most."""
        others = self.evidence + self.afterwards
        return others + self.launches.least, others + self.launches.most

    @property
    def seconds_at_most(self) -> float:
        return self.seconds + self.launches.seconds


def left_of(rounds: Rounds) -> RemainingWork:
    """What the runs with these rounds have still to do."""
    evidence = [len(run.evidence_left) for run in rounds.runs]
    energy = [len(_energy_left(run)) for run in rounds.runs]
    sampling = [len(_sampling_left(run)) for run in rounds.runs]
    seconds = sum(
        count * _evidence_seconds(run) + gauged * run.config.schedule.energy_s + sampled * SECONDS
        for run, count, gauged, sampled in zip(rounds.runs, evidence, energy, sampling, strict=True)
    )
    return RemainingWork(sum(evidence), rounds.left(), sum(energy) + sum(sampling), seconds)


def _evidence_seconds(run: Measuring) -> float:
    """Of one process: as those took that have ended, or what a program takes under emulation."""
    if taken := [entry.seconds for entry in run.journal.entries() if entry.kind == "evidence"]:
        return sum(taken) / len(taken)
    return 0.0 if run.target.timings_are_latency else emulated_seconds(run.config.model)


def _energy_left(run: Measuring) -> list[Step]:
    """What is missing; nothing where it was not asked for or cannot be told."""
    metered = isinstance(run.target, MeteredTarget) and run.target.timings_are_latency
    if not run.config.schedule.energy_s or not metered:
        return []
    wanted = {step.series for step in run.steps_of(0)}
    return run.missing(Step("energy", series) for series in sorted(wanted, key=str))


def measure_energy(run: Measuring) -> Iterator[Piece]:
    """Measure the energy that is missing; a warning says why none can be."""
    seconds, target, steps = run.config.schedule.energy_s, run.target, _energy_left(run)
    if not steps or not isinstance(target, MeteredTarget):
        return
    gauge = target.gauge()
    if isinstance(gauge, str):
        advice = f"reach it over Wi-Fi, without the cable ({document('android.md')})"
        run.warn(Diagnostic(None, "no_energy", f"energy was not measured: {gauge}", advice))
        return
    run.progress.stage("measuring energy")
    for number, step in enumerate(steps, start=1):
        if runs := _runs_in(run, step.series, seconds, _MOST_METERED_RUNS):
            run.do(step, runs=runs, gauge=gauge, timeout_s=run.config.schedule.timeout_s + 2 * seconds)
            run.progress.advance(number, len(steps), str(step.series))
            yield Piece("energy", str(step.series))


def _sampling_left(run: Measuring) -> list[Step]:
    """What is missing, if it was asked for: of the kit's own runner alone, and where times are not latencies
    of whatever evidence was gathered of."""
    if not run.config.schedule.sample:
        return []
    steps = run.steps_of(0) if run.target.timings_are_latency else run.schedule.evidence
    found = {step.series for step in steps if experiment_of(run.config, step.series).runner is None}
    return run.missing(Step("sampled", series) for series in sorted(found - run.failed, key=str))


def sample(run: Measuring) -> Iterator[Piece]:
    """Sample what is missing."""
    steps, latencies = _sampling_left(run), run.target.timings_are_latency
    if steps:
        run.progress.stage("sampling threads")
    for number, step in enumerate(steps, start=1):
        # The backend's looks at the clock are told apart by a first execution, so one is always made before.
        warmup = max(1, experiment_of(run.config, step.series).warmup) if latencies else 1
        runs = _runs_in(run, step.series, SECONDS, _MOST_SAMPLED_RUNS) if latencies else None
        run.do(step, runs=runs or 1, warmup=warmup, sample_hz=HZ)
        run.progress.advance(number, len(steps), str(step.series))
        yield Piece("sampling", str(step.series))


def _runs_in(run: Measuring, series: Series, seconds: float, most: int) -> int | None:
    """How many inferences take so many seconds; None where no latency is known."""
    measured = run.journal.latencies_ms(series, run.journal.rounds_of(series))
    every = [latency for latencies in measured for latency in latencies]
    latency_ms = statistics.median(every) if every else None
    return min(math.ceil(seconds * 1e3 / latency_ms), most) if latency_ms else None
