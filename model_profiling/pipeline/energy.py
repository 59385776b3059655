"""The energy of one inference, where a phone's fuel gauge tells: each experiment once more, long and alone.

Turns are far too short for a gauge, so programs that take turns cannot be told apart by it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from model_profiling.own_commands import document
from model_profiling.pipeline.measuring import Measuring, Piece
from model_profiling.run.journal import Step
from model_profiling.run.remarks import Remark
from model_profiling.run.series import Series
from model_profiling.targets.protocol import MeteredTarget

_MOST_RUNS = 1_000_000


def energy_left(run: Measuring) -> list[Step]:
    """What is missing; nothing where it was not asked for or cannot be told."""
    metered = isinstance(run.target, MeteredTarget) and run.target.timings_are_latency
    if not run.config.schedule.energy_s or not metered:
        return []
    wanted = {step.series for step in run.steps_of(0)}
    return run.missing(Step("energy", series) for series in sorted(wanted, key=str))


def measure_energy(run: Measuring) -> Iterator[Piece]:
    """Measure what is missing; why nothing can be is said."""
    seconds, target, steps = run.config.schedule.energy_s, run.target, energy_left(run)
    if not steps or not isinstance(target, MeteredTarget):
        return
    gauge = target.gauge()
    if isinstance(gauge, str):
        advice = f"reach it over Wi-Fi, without the cable ({document('android.md')})"
        run.warn(Remark(None, "no_energy", f"energy was not measured: {gauge}", advice))
        return
    run.progress.stage("measuring energy")
    for number, step in enumerate(steps, start=1):
        if latency_ms := median_latency_ms(run, step.series):
            runs = min(math.ceil(seconds * 1e3 / latency_ms), _MOST_RUNS)
            run.do(step, runs=runs, gauge=gauge, timeout_s=run.config.schedule.timeout_s + 2 * seconds)
            run.progress.advance(number, len(steps), str(step.series))
            yield Piece("energy", str(step.series))


def median_latency_ms(run: Measuring, series: Series) -> float | None:
    measured = run.journal.latencies_ms(series, run.journal.rounds_of(series))
    every = [latency for latencies in measured for latency in latencies]
    return statistics.median(every) if every else None
