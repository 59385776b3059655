"""What of a run is still to be measured, and about how long that takes: as far as its journal can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from model_profiling.pipeline.measuring import SECONDS, Measuring, energy_left, sampling_left
from model_profiling.pipeline.rounds import Rounds, RoundsLeft
from model_profiling.pipeline.schedule import emulated_seconds


@dataclass(frozen=True, slots=True)
class Left:
    """Pieces and seconds; an estimate, which every piece makes better."""

    evidence: int = 0
    launches: RoundsLeft = field(default_factory=RoundsLeft)
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


def left_of(rounds: Rounds) -> Left:
    """What the runs whose rounds these are have still to do."""
    evidence = [len(run.evidence_left) for run in rounds.runs]
    energy = [len(energy_left(run)) for run in rounds.runs]
    sampling = [len(sampling_left(run)) for run in rounds.runs]
    seconds = sum(
        count * _evidence_seconds(run) + gauged * run.config.schedule.energy_s + sampled * SECONDS
        for run, count, gauged, sampled in zip(rounds.runs, evidence, energy, sampling, strict=True)
    )
    return Left(sum(evidence), rounds.left(), sum(energy) + sum(sampling), seconds)


def _evidence_seconds(run: Measuring) -> float:
    """Of one process: as those took that have ended, or what a program takes under emulation."""
    taken = [entry.seconds for entry in run.journal.entries() if entry.kind == "evidence"]
    if taken:
        return _mean(taken)
    return 0.0 if run.target.timings_are_latency else emulated_seconds(run.config.model)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
