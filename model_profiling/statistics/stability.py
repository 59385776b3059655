"""Reasons to trust a measurement less, each with what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from model_profiling.statistics.latency import LatencySummary, find_drift, summarize
from model_profiling.statistics.speedup import EXACT_ROUNDS, Rounds, round_typical

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
    return tuple(_about_machine(conditions, threads))


def latency_warnings(rounds: Rounds) -> tuple[StabilityWarning, ...]:
    """What about these latencies (one sequence per process) makes them less certain."""
    values = [value for one in rounds for value in one]
    if not values:
        return (StabilityWarning("nothing", "no latency was measured", "look at the runner's log"),)
    return tuple(_about_latencies(rounds, summarize(values)))


def _about_machine(conditions: Conditions, threads: int) -> Iterator[StabilityWarning]:
    governor, load, cores = conditions.governor, conditions.load_before, conditions.cores
    if governor is not None and governor not in _STEADY_GOVERNORS:
        yield StabilityWarning(
            "governor",
            f"the CPU governor is {governor}, which changes the clock as it likes",
            "set it to performance (cpupower frequency-set -g performance)",
        )
    if load is not None and cores and load > max(0.25 * cores, cores - threads):
        yield StabilityWarning(
            "load",
            f"the load was {load:.1f} on {cores} cores before measuring",
            "stop other work, or measure more rounds",
        )
    before, after = conditions.temperature_before_c, conditions.temperature_after_c
    if before is not None and after is not None and after - before >= _HOTTER:
        yield StabilityWarning(
            "heat",
            f"the temperature rose from {before:.0f} to {after:.0f} C",
            "set schedule.cool_down_s or schedule.max_temperature_c",
        )
    if conditions.on_battery:
        yield StabilityWarning("battery", "the machine runs on battery", "plug it in")
    if cores and threads > cores:
        yield StabilityWarning("threads", f"{threads} threads share {cores} cores", "use fewer threads")


def _about_latencies(rounds: Rounds, summary: LatencySummary) -> Iterator[StabilityWarning]:
    finished = [one for one in rounds if len(one)]
    typical = round_typical(rounds)
    if len(finished) < EXACT_ROUNDS:
        yield StabilityWarning(
            "rounds",
            f"only {len(finished)} round{' was' if len(finished) == 1 else 's were'} measured",
            f"measure at least {EXACT_ROUNDS}",
        )
    if (fewest := min(len(one) for one in finished)) < 5:
        seen = f"a process timed only {fewest} inference{'' if fewest == 1 else 's'}"
        yield StabilityWarning("runs", seen, "set runs to 10 or more")
    if (slower := _first_is_slow(finished)) is not None:
        yield StabilityWarning(
            "warmup", f"the first inference of a process is {slower:.0%} slower", "raise warmup"
        )
    if summary.robust_cv > _WIDE_SPREAD:
        yield StabilityWarning(
            "spread", f"latencies spread by {summary.robust_cv:.0%}", "stop other work or pin the CPUs"
        )
    if len(typical) >= 3 and (apart := float(typical.std(ddof=1) / typical.mean())) > _WIDE_ROUNDS:
        yield StabilityWarning(
            "processes",
            f"processes differ by {apart:.0%} from each other",
            "pin the CPUs (cpu_affinity) or measure more rounds",
        )
    if len(summary.outliers) > max(2.0, _MANY_OUTLIERS * summary.count):
        yield StabilityWarning(
            "outliers",
            f"{len(summary.outliers)} of {summary.count} latencies are outliers",
            "stop other work; medians are little affected",
        )
    drift = find_drift(typical) or summary.drift
    if drift is not None and drift.found:
        way = "slower" if drift.relative_change > 0 else "faster"
        yield StabilityWarning(
            "drift",
            f"latencies became {abs(drift.relative_change):.0%} {way} while measuring",
            "let it cool down (schedule.cool_down_s) and check for throttling",
        )
    if summary.bimodality is not None and summary.bimodality.found:
        modes = summary.bimodality
        yield StabilityWarning(
            "bimodal",
            f"latencies fall in two groups, around {modes.low_mode:.4g} and {modes.high_mode:.4g} "
            f"({modes.high_share:.0%} in the slower)",
            "look for two kinds of core or two clock speeds; pin the CPUs (cpu_affinity)",
        )


def _first_is_slow(rounds: Rounds) -> float | None:
    """How much slower first inferences are than the rest of their process, if they clearly are."""
    shares = [
        one[0] / float(np.median(one[1:])) - 1 for one in rounds if len(one) >= 5 and np.median(one[1:]) > 0
    ]
    if len(shares) < 3 or float(np.median(shares)) < 0.10:
        return None
    return float(np.median(shares))
