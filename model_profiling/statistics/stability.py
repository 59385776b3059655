"""Reasons to trust a measurement less, each with what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from model_profiling.statistics.latency import LatencySummary, find_drift, summarize
from model_profiling.statistics.lockstep import Launches, counted
from model_profiling.statistics.speedup import EXACT_ROUNDS, Rounds, round_typical
from model_profiling.wording import plural

_STEADY_GOVERNORS = {"performance", "userspace"}
_WIDE_SPREAD = 0.10
_WIDE_ROUNDS = 0.05
_MANY_OUTLIERS = 0.05
_HOTTER = 10.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine around a measurement, as far as it tells; None where it does not."""

    cores: int | None = None
    governor: str | None = None
    load_before: float | None = None
    """The load average when measuring began: the kit's own processes are in a later one."""
    temperature_before_c: float | None = None
    temperature_after_c: float | None = None
    on_battery: bool | None = None
    throttled: bool = False
    """The machine said that it slowed itself down because it was hot."""


@dataclass(frozen=True, slots=True)
class StabilityWarning:
    """One reason: a fixed word for programs, what was seen, and what to do."""

    code: str
    seen: str
    advice: str

    def __str__(self) -> str:
        return f"{self.seen}; {self.advice}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def machine_warnings(conditions: Conditions, *, threads: int = 1) -> tuple[StabilityWarning, ...]:
    """What about the machine makes any measurement on it less certain."""
    found = []
    governor, load, cores = conditions.governor, conditions.load_before, conditions.cores
    if governor is not None and governor not in _STEADY_GOVERNORS:
        seen = f"the CPU governor is {governor}, which changes the clock as it likes"
        advice = "set it to performance (cpupower frequency-set -g performance)"
        found.append(StabilityWarning("governor", seen, advice))
    if load is not None and cores and load > max(0.25 * cores, cores - threads):
        seen = f"the load was {load:.1f} on {cores} cores before measuring"
        found.append(StabilityWarning("load", seen, "stop other work, or measure for longer (--budget)"))
    before, after = conditions.temperature_before_c, conditions.temperature_after_c
    if before is not None and after is not None and after - before >= _HOTTER:
        seen = f"the temperature rose from {before:.0f} to {after:.0f} C"
        advice = "set schedule.cool_down_s or schedule.max_temperature_c"
        found.append(StabilityWarning("heat", seen, advice))
    if conditions.throttled:
        seen = "the machine slowed itself down because it was hot"
        advice = "let it cool down (schedule.cool_down_s, schedule.max_temperature_c)"
        found.append(StabilityWarning("hot", seen, advice))
    if conditions.on_battery:
        found.append(StabilityWarning("battery", "the machine runs on battery", "plug it in"))
    if cores and threads > cores:
        seen = f"{threads} threads share {cores} cores"
        found.append(StabilityWarning("threads", seen, "use fewer threads"))
    return tuple(found)


def latency_warnings(rounds: Rounds) -> tuple[StabilityWarning, ...]:
    """What about these latencies (one sequence per process) makes them less certain."""
    return _warnings(rounds, "round", "set runs to 10 or more", "or measure more rounds")


def launch_warnings(launches: Launches) -> tuple[StabilityWarning, ...]:
    """The same of one experiment that took turns; a launch is its process."""
    hardly = "or trust the ratios more than the latencies: what differs between launches meets both sides"
    return _warnings(counted(launches), "launch", "raise the budget (--budget)", hardly)


def _warnings(rounds: Rounds, unit: str, longer: str, apart: str) -> tuple[StabilityWarning, ...]:
    """`unit`: what a process stands for; `longer`: how to time more; `apart`: what helps if they differ."""
    finished = [latencies for latencies in rounds if len(latencies)]
    if not finished:
        return (StabilityWarning("nothing", "no latency was measured", "look at the runner's log"),)
    summary = summarize([value for process in finished for value in process])
    return tuple(_about_latencies(finished, summary, unit, longer, apart))


def _about_latencies(
    finished: Rounds, summary: LatencySummary, unit: str, longer: str, apart: str
) -> Iterator[StabilityWarning]:
    typical = round_typical(finished)
    if len(finished) < EXACT_ROUNDS:
        seen = f"only {plural(len(finished), unit)} {'was' if len(finished) == 1 else 'were'} measured"
        yield StabilityWarning("rounds", seen, f"measure at least {EXACT_ROUNDS}")
    if (fewest := min(map(len, finished))) < 5:
        seen = f"a process timed only {plural(fewest, 'inference')}"
        yield StabilityWarning("runs", seen, longer)
    if (slower := _first_is_slow(finished)) is not None:
        seen = f"the first inference of a process is {slower:.0%} slower"
        yield StabilityWarning("warmup", seen, "raise warmup")
    if summary.robust_cv > _WIDE_SPREAD:
        seen = f"latencies spread by {summary.robust_cv:.0%}"
        yield StabilityWarning("spread", seen, "stop other work or pin the CPUs")
    if len(typical) >= 3 and (spread := float(typical.std(ddof=1) / typical.mean())) > _WIDE_ROUNDS:
        seen = f"processes differ by {spread:.0%} from each other"
        yield StabilityWarning("processes", seen, f"pin the CPUs (cpu_affinity) {apart}")
    if len(summary.outliers) > max(2.0, _MANY_OUTLIERS * summary.count):
        seen = f"{len(summary.outliers)} of {summary.count} latencies are outliers"
        yield StabilityWarning("outliers", seen, "stop other work; medians are little affected")
    drift = find_drift(typical) or summary.drift
    if drift is not None and drift.found:
        way = "slower" if drift.relative_change > 0 else "faster"
        seen = f"latencies became {abs(drift.relative_change):.0%} {way} while measuring"
        advice = "let it cool down (schedule.cool_down_s) and check for throttling"
        yield StabilityWarning("drift", seen, advice)
    modes = summary.bimodality
    if modes is not None and modes.found:
        groups = f"around {modes.low_mode:.4g} and {modes.high_mode:.4g}"
        seen = f"latencies fall in two groups, {groups} ({modes.high_share:.0%} in the slower)"
        advice = "look for two kinds of core or two clock speeds; pin the CPUs (cpu_affinity)"
        yield StabilityWarning("bimodal", seen, advice)


def _first_is_slow(rounds: Rounds) -> float | None:
    """How much slower first inferences are than the rest of their process, if they clearly are."""
    shares = [
        process[0] / float(np.median(process[1:])) - 1
        for process in rounds
        if len(process) >= 5 and np.median(process[1:]) > 0
    ]
    slower = float(np.median(shares)) if len(shares) >= 3 else 0.0
    return slower if slower >= 0.10 else None
