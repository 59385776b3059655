"""The energy of one inference, where a phone's fuel gauge tells: each experiment once more, long and alone.

Turns are far too short for a gauge, so programs that take turns cannot be told apart by it.
"""

from __future__ import annotations

import math
import statistics

from model_profiling.own_commands import document
from model_profiling.pipeline.measuring import Measuring
from model_profiling.run.journal import Step
from model_profiling.run.remarks import Remark
from model_profiling.run.series import Series
from model_profiling.targets.protocol import MeteredTarget

_MOST_RUNS = 1_000_000


def measure_energy(run: Measuring) -> None:
    """Measure what is missing; why nothing can be is said."""
    seconds, target = run.config.schedule.energy_s, run.target
    if not seconds or not isinstance(target, MeteredTarget) or not target.timings_are_latency:
        return
    wanted = {step.series for step in run.steps_of(0)}
    steps = [
        step for series in sorted(wanted, key=str) if not run.journal.done(step := Step("energy", series))
    ]
    if not steps:
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


def median_latency_ms(run: Measuring, series: Series) -> float | None:
    measured = run.journal.latencies_ms(series, run.journal.rounds_of(series))
    every = [latency for latencies in measured for latency in latencies]
    return statistics.median(every) if every else None
