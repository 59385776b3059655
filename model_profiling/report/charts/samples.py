"""What was timed of each series of a run, as charts show it: every latency with its statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.report.charts.drawing import named
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.run import Series, names
from model_profiling.statistics.latency import LatencySummary

MOST_SAMPLES = 600
"""In one chart: more are not told apart, and a page is to stay small."""
MOST_SERIES = 6
"""That lines and colours still tell apart."""
FEWEST_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Sampled:
    """One series; milliseconds."""

    series: Series
    summary: LatencySummary
    rounds: Sequence[Sequence[float]]
    """Every latency in the order it was measured, by launch or round; empty where none is kept."""
    unit: str
    """launch, or round."""
    source: str
    """The file they are from."""

    @property
    def label(self) -> str:
        return named(str(self.series))

    @property
    def count(self) -> int:
        return sum(map(len, self.rounds))


def sampled(data: ReportData) -> list[Sampled]:
    """Latencies without the tracer where they were measured; else times of dumps, which have it on."""
    measured = [(found, found.latency.end_to_end_ms) for found in data.experiments if found.latency]
    known = [_measured(data, found, summary) for found, summary in measured if summary]
    return known or [_of_dumps(found) for found in data.experiments if found.dumps and found.times.are_shown]


def _measured(data: ReportData, found: ExperimentReport, summary: LatencySummary) -> Sampled:
    kept = data.run.robust_stats(found.series)
    file = found.result.latency if found.result and found.result.latency else names.METRICS
    unit = "launch" if found.latency and found.latency.measured == "lockstep" else "round"
    return Sampled(found.series, summary, kept.end_to_end_rounds_ms if kept else (), unit, file)


def _of_dumps(found: ExperimentReport) -> Sampled:
    dumps = found.dumps
    assert dumps is not None
    rounds = dumps.part_rounds(dumps.breakdown.e2e)
    return Sampled(found.series, dumps.latency, rounds, dumps.unit, dumps.first.path.name)


def usual_end(found: Sequence[Sampled]) -> float:
    """Where an axis of latencies ends: stragglers far away must not squeeze all others into a line."""
    far = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    return min(far, max(each.summary.maximum for each in found))


def files_of(found: Sequence[Sampled]) -> str:
    return ", ".join(dict.fromkeys(each.source for each in found))
