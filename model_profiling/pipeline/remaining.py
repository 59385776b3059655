"""What is measured after the rounds, and an estimate of what is still to be measured.

After the rounds each experiment runs once more, long and alone: for the energy of one inference if a phone's
fuel gauge can be read (turns are far too short for it), and to sample where operators spend their time. The
times of these runs are not latencies.
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
"""Per thread; `bench/sampling_cost.py` measures the cost."""
SECONDS = 3.0
_MOST_METERED_RUNS, _MOST_SAMPLED_RUNS = 1_000_000, 20_000


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Estimated pieces and seconds; the estimate improves with every piece."""

    evidence: int = 0
    launches: RemainingRounds = field(default_factory=RemainingRounds)
    afterwards: int = 0
    """For energy and sampling."""
    seconds: float = 0.0
    """Of evidence, energy and sampling, as far as known."""

    @property
    def nothing(self) -> bool:
        """Whether the next step certainly finds nothing to do."""
        return not self.evidence and not self.launches.most and not self.afterwards

    @property
    def steps(self) -> tuple[int, int]:
        """(minimum, maximum)."""
        others = self.evidence + self.afterwards
        return others + self.launches.least, others + self.launches.most

    @property
    def seconds_at_most(self) -> float:
        return self.seconds + self.launches.seconds


def left_of(rounds: Rounds) -> RemainingWork:
    evidence = [len(run.evidence_left) for run in rounds.runs]
    energy = [len(_energy_left(run)) for run in rounds.runs]
    sampling = [len(_sampling_left(run)) for run in rounds.runs]
    seconds = sum(
        count * _evidence_seconds(run) + gauged * run.config.schedule.energy_s + sampled * SECONDS
        for run, count, gauged, sampled in zip(rounds.runs, evidence, energy, sampling, strict=True)
    )
    return RemainingWork(sum(evidence), rounds.left(), sum(energy) + sum(sampling), seconds)


def _evidence_seconds(run: Measuring) -> float:
    """Return the mean time of finished evidence processes, or the estimate for emulation."""
    if taken := [entry.seconds for entry in run.journal.entries() if entry.kind == "evidence"]:
        return sum(taken) / len(taken)
    return 0.0 if run.target.timings_are_latency else emulated_seconds(run.config.model)


def _energy_left(run: Measuring) -> list[Step]:
    """Return the missing steps; none if energy was not requested or cannot be measured."""
    metered = isinstance(run.target, MeteredTarget) and run.target.timings_are_latency
    if not run.config.schedule.energy_s or not metered:
        return []
    wanted = {step.series for step in run.steps_of(0)}
    return run.missing(Step("energy", series) for series in sorted(wanted, key=str))


def measure_energy(run: Measuring) -> Iterator[Piece]:
    """Measure the missing energy, or warn why it cannot be measured."""
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
    """Return the missing steps if sampling was requested. Only the kit's own runner can sample; if times are
    not latencies, the series with evidence are sampled."""
    if not run.config.schedule.sample:
        return []
    steps = run.steps_of(0) if run.target.timings_are_latency else run.schedule.evidence
    found = {step.series for step in steps if experiment_of(run.config, step.series).runner is None}
    return run.missing(Step("sampled", series) for series in sorted(found - run.failed, key=str))


def sample(run: Measuring) -> Iterator[Piece]:
    steps, latencies = _sampling_left(run), run.target.timings_are_latency
    if steps:
        run.progress.stage("sampling threads")
    for number, step in enumerate(steps, start=1):
        # In a warm-up execution the runner counts the backend's clock reads per operator, so always make one.
        warmup = max(1, experiment_of(run.config, step.series).warmup) if latencies else 1
        runs = _runs_in(run, step.series, SECONDS, _MOST_SAMPLED_RUNS) if latencies else None
        run.do(step, runs=runs or 1, warmup=warmup, sample_hz=HZ)
        run.progress.advance(number, len(steps), str(step.series))
        yield Piece("sampling", str(step.series))


def _runs_in(run: Measuring, series: Series, seconds: float, most: int) -> int | None:
    """Return how many inferences take `seconds`; None if no latency is known."""
    measured = run.journal.latencies_ms(series, run.journal.rounds_of(series))
    every = [latency for latencies in measured for latency in latencies]
    latency_ms = statistics.median(every) if every else None
    return min(math.ceil(seconds * 1e3 / latency_ms), most) if latency_ms else None
