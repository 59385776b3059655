"""Where the time of operators goes: each experiment once more, by itself, while the runner looks where its
threads are. Whatever it takes then is no latency."""

from __future__ import annotations

import math
from collections.abc import Iterator

from model_profiling.pipeline.energy import median_latency_ms
from model_profiling.pipeline.measuring import Measuring, Piece
from model_profiling.pipeline.schedule import experiment_of
from model_profiling.run.journal import Step
from model_profiling.run.series import Series

HZ = 1000
"""For each thread; `bench/sampling_cost.py` shows what it costs."""
SECONDS = 3.0
_MOST_RUNS = 20_000


def sampling_left(run: Measuring) -> list[Step]:
    """What is missing, if it was asked for."""
    if not run.config.schedule.sample:
        return []
    return run.missing(Step("sampled", series) for series in _wanted(run))


def sample(run: Measuring) -> Iterator[Piece]:
    """Sample what is missing."""
    steps = sampling_left(run)
    if steps:
        run.progress.stage("sampling threads")
    for number, step in enumerate(steps, start=1):
        # The first execution is what tells the backend's looks at the clock apart, so one is always made
        # before.
        warmup = (
            max(1, experiment_of(run.config, step.series).warmup) if run.target.timings_are_latency else 1
        )
        run.do(step, runs=_runs(run, step.series), warmup=warmup, sample_hz=HZ)
        run.progress.advance(number, len(steps), str(step.series))
        yield Piece("sampling", str(step.series))


def _wanted(run: Measuring) -> list[Series]:
    """The series of the kit's own runner that are measured, or looked at where times are no latencies."""
    steps = run.steps_of(0) if run.target.timings_are_latency else run.schedule.evidence
    found = {step.series for step in steps if experiment_of(run.config, step.series).runner is None}
    return sorted(found - run.failed, key=str)


def _runs(run: Measuring, series: Series) -> int:
    latency_ms = median_latency_ms(run, series) if run.target.timings_are_latency else None
    return min(math.ceil(SECONDS * 1e3 / latency_ms), _MOST_RUNS) if latency_ms else 1
