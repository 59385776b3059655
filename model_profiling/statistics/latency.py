"""Description of a set of latencies: centre, spread, drift, two groups; and warnings about its stability.

No value is dropped. Outliers are marked by position, so that a person can look at them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.statistics.lockstep import Launches, counted
from model_profiling.statistics.speedup import EXACT_ROUNDS, Rounds, round_typical

Floats = npt.NDArray[np.float64]

_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_OUTLIER_SIGMAS = 3.5
_TRIMMED_SHARE = 0.10
_LONGEST_SERIES = 600  # pairwise slopes grow with the square of the length
_BIMODAL_FEWEST = 20


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend in the order of measurement (Mann-Kendall, Theil-Sen)."""

    relative_change: float
    """From the first to the last measurement, relative to the median: 0.05 means 5% slower at the end."""
    p_value: float
    found: bool


@dataclass(frozen=True, slots=True)
class Bimodality:
    """Two separate groups of latencies, such as from two clock speeds or two kinds of core."""

    found: bool
    low_mode: float
    high_mode: float
    high_share: float


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Statistics of one set of latencies, in the unit they came in (the kit uses milliseconds)."""

    count: int
    median: float
    mean: float
    trimmed_mean: float
    minimum: float
    maximum: float
    p5: float
    p10: float
    p90: float
    p95: float
    p99: float
    mad: float
    """Median absolute deviation from the median, not scaled."""
    std: float
    cv: float
    robust_cv: float
    """CV computed from the MAD: the spread without the outliers."""
    outliers: tuple[int, ...]
    """Positions of the latencies more than 3.5 robust standard deviations from the median."""
    autocorrelation: float
    """Between neighbours; near 1, each measurement mostly repeats the one before."""
    effective_count: float
    """How many independent measurements these are worth."""
    drift: Drift | None
    bimodality: Bimodality | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize(latencies: Sequence[float] | Floats) -> LatencySummary:
    """Describe `latencies`, given in the order they were measured."""
    values = _checked(latencies)
    median = float(np.median(values))
    mad = float(np.median(np.abs(values - median)))
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    edges = (5, 10, 90, 95, 99)
    percentiles = zip(edges, np.percentile(values, edges).tolist(), strict=True)
    trimmed = int(len(values) * _TRIMMED_SHARE)
    autocorrelation, effective = _dependence(values)
    return LatencySummary(
        count=len(values),
        median=median,
        mean=mean,
        trimmed_mean=float(np.sort(values)[trimmed : len(values) - trimmed].mean()),
        minimum=float(values.min()),
        maximum=float(values.max()),
        **{f"p{edge}": value for edge, value in percentiles},
        mad=mad,
        std=std,
        cv=std / mean if mean else 0.0,
        robust_cv=_MAD_TO_SIGMA * mad / median if median else 0.0,
        outliers=find_outliers(values),
        autocorrelation=autocorrelation,
        effective_count=effective,
        drift=find_drift(values),
        bimodality=find_bimodality(values),
    )


def _checked(latencies: Sequence[float] | Floats) -> Floats:
    values = np.asarray(latencies, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise InputError("there are no latencies", "give at least one")
    if not np.isfinite(values).all() or (values < 0).any():
        place = int(np.flatnonzero(~np.isfinite(values) | (values < 0))[0])
        raise InputError(f"latency {place} is {values[place]}", "a latency is a finite number, not negative")
    return values


def find_outliers(values: Floats) -> tuple[int, ...]:
    """Positions far from the median, by the MAD, or the mean deviation where half of all values are equal."""
    away = np.abs(values - np.median(values))
    scale = _MAD_TO_SIGMA * float(np.median(away)) or 1.2533 * float(away.mean())
    if scale == 0:
        return ()
    return tuple(int(place) for place in np.flatnonzero(away > _OUTLIER_SIGMAS * scale))


def _dependence(values: Floats) -> tuple[float, float]:
    """Autocorrelation of neighbours and the effective count: Geyer's initial positive sequence, on ranks."""
    count = len(values)
    if count < 4 or np.ptp(values) == 0:
        return 0.0, float(count)
    _, which, repeats = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(repeats) - (repeats - 1) / 2)[which]
    ranks -= ranks.mean()
    spectrum = np.fft.rfft(ranks, 2 * count)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum))[:count]
    correlation /= correlation[0]
    pairs = correlation[1 : 1 + 2 * ((count - 1) // 2)].reshape(-1, 2).sum(axis=1)
    fading = np.flatnonzero(pairs <= 0)
    kept = pairs[: fading[0]] if len(fading) else pairs
    time = 1 + 2 * float(kept.sum())
    return float(correlation[1]), min(float(count), max(1.0, count / time))


def find_drift(values: Floats, *, level: float = 0.01, smallest: float = 0.02) -> Drift | None:
    """A trend; `found` if chance rarely gives it (`level`) and it is large enough to matter (`smallest`)."""
    if len(values) < 8 or np.median(values) == 0:
        return None
    # Shorten a long series to medians of neighbouring values.
    size = math.ceil(len(values) / _LONGEST_SERIES)
    series = np.median(values[: len(values) // size * size].reshape(-1, size), axis=1)
    count = len(series)
    first, second = np.triu_indices(count, 1)
    rises = series[second] - series[first]
    score = float(np.sign(rises).sum())
    slope = float(np.median(rises / (second - first)))
    # Neighbours that resemble each other can look like a trend: widen the score's variance by the dependence
    # that remains once the trend is removed.
    _, effective = _dependence(series - slope * np.arange(count))
    _, repeats = np.unique(series, return_counts=True)
    ties = float((repeats * (repeats - 1) * (2 * repeats + 5)).sum())
    variance = (count * (count - 1) * (2 * count + 5) - ties) / 18 * count / effective
    z = max(0.0, abs(score) - 1) / math.sqrt(variance) if variance > 0 else 0.0
    p_value = math.erfc(z / math.sqrt(2))
    change = slope * (count - 1) / float(np.median(values))
    return Drift(change, p_value, p_value < level and abs(change) >= smallest)


def find_bimodality(values: Floats) -> Bimodality | None:
    """Two groups with a valley between them; None when there are too few latencies to say.

    Fits two normal distributions to the logs. They count as two groups only if they explain the data clearly
    better than one (BIC), each holds a tenth of it, and fewer values lie between them than around either: a
    long tail or a flat top also fits two components better, but has no valley.
    """
    if len(values) < _BIMODAL_FEWEST or (values == 0).any():
        return None
    logs = np.sort(np.log(values))
    logs = logs[np.linspace(0, len(logs) - 1, min(len(logs), 2000)).round().astype(int)]
    # A value farther than this from the median is a spike, not part of a group.
    low, high = np.percentile(logs, [10, 90])
    logs = logs[np.abs(logs - np.median(logs)) <= max(3 * float(high - low), 1e-12)]
    single = Bimodality(False, float(np.median(values)), float(np.median(values)), 0.0)
    if np.ptp(logs) == 0:
        return single
    means, shares, likelihood = _two_normals(logs)
    alone = -len(logs) / 2 * (math.log(2 * math.pi * float(logs.var())) + 1)
    gain = 2 * (likelihood - alone) - 3 * math.log(len(logs))
    if not (gain > 10 and shares.min() >= 0.1 and _valley_between(means, logs)):
        return single
    upper = int(np.argmax(means))
    return Bimodality(True, math.exp(means[1 - upper]), math.exp(means[upper]), float(shares[upper]))


def _two_normals(logs: Floats) -> tuple[Floats, Floats, float]:
    """Means, shares and log-likelihood of the best two-part fit, by EM.

    Starts from the split with the least variance. A part's spread stays above a twentieth of the whole
    spread, or it would fit a handful of equal values.
    """
    count = np.arange(1, len(logs))
    below = np.cumsum(logs)[:-1]
    between = below**2 / count + (logs.sum() - below) ** 2 / (len(logs) - count)
    split = int(np.argmax(between)) + 1
    parts = (logs[:split], logs[split:])
    floor = float(logs.std()) / 20
    means = np.array([part.mean() for part in parts])
    sigmas = np.array([max(float(part.std()), floor) for part in parts])
    shares = np.array([len(part) / len(logs) for part in parts])
    likelihood = -math.inf
    for _ in range(200):
        distances = (logs[:, None] - means) / sigmas
        density = shares / (sigmas * math.sqrt(2 * math.pi)) * np.exp(-0.5 * distances**2)
        total = np.maximum(density.sum(axis=1), 1e-300)
        reached = float(np.log(total).sum())
        if reached - likelihood < 1e-6 * len(logs):
            break
        likelihood = reached
        weights = density / total[:, None]
        mass = np.maximum(weights.sum(axis=0), 1e-9)
        means = (weights * logs[:, None]).sum(axis=0) / mass
        sigmas = np.sqrt((weights * (logs[:, None] - means) ** 2).sum(axis=0) / mass)
        sigmas = np.maximum(sigmas, floor)
        shares = mass / len(logs)
    return means, shares, likelihood


def _valley_between(means: Floats, logs: Floats) -> bool:
    """Whether the emptiest stretch between the means holds under half of what is around either mean.

    Groups closer than 1% do not matter; groups a few clock steps apart come from the clock, not the machine.
    """
    low, high = float(means.min()), float(means.max())
    distinct = np.unique(logs)
    # Values that repeat this often show the clock's step.
    coarse = 1 < len(distinct) < len(logs) / 2
    if high - low < max(0.01, 4 * float(np.diff(distinct).min()) if coarse else 0.0):
        return False
    reach = (high - low) / 6
    places = np.linspace(low + 2 * reach, high - 2 * reach, 9)
    valley = min(_near(logs, place, reach) for place in places)
    return valley < 0.5 * min(_near(logs, low, reach), _near(logs, high, reach))


def _near(logs: Floats, place: float, reach: float) -> int:
    return int(np.searchsorted(logs, place + reach, "right") - np.searchsorted(logs, place - reach, "left"))


# Reasons to trust a measurement less, each with advice.

_STEADY_GOVERNORS = {"performance", "userspace"}
_WIDE_SPREAD = 0.10
_WIDE_ROUNDS = 0.05
_MANY_OUTLIERS = 0.05
_HOTTER = 10.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """State of the machine around a measurement; None where unknown."""

    cores: int | None = None
    governor: str | None = None
    load_before: float | None = None
    """Load average before measuring; a later one would include the kit's own processes."""
    temperature_before_c: float | None = None
    temperature_after_c: float | None = None
    on_battery: bool | None = None
    throttled: bool = False
    """The machine reported that it slowed down because it was hot."""


@dataclass(frozen=True, slots=True)
class StabilityWarning:
    """One reason to trust a measurement less: a fixed code for programs, the observation, and advice."""

    code: str
    seen: str
    advice: str

    def __str__(self) -> str:
        return f"{self.seen}; {self.advice}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def machine_warnings(conditions: Conditions, *, threads: int = 1) -> tuple[StabilityWarning, ...]:
    return tuple(_machine_warnings(conditions, threads))


def _machine_warnings(conditions: Conditions, threads: int) -> Iterator[StabilityWarning]:
    governor, load, cores = conditions.governor, conditions.load_before, conditions.cores
    if governor is not None and governor not in _STEADY_GOVERNORS:
        seen = f"the CPU governor is {governor}, which changes the clock speed while measuring"
        yield StabilityWarning(
            "governor", seen, "set it to performance (cpupower frequency-set -g performance)"
        )
    if load is not None and cores and load > max(0.25 * cores, cores - threads):
        seen = f"the machine was busy before measuring (load {load:.1f} on {cores} cores)"
        yield StabilityWarning("load", seen, "stop other programs, or measure longer (--budget)")
    before, after = conditions.temperature_before_c, conditions.temperature_after_c
    if before is not None and after is not None and after - before >= _HOTTER:
        seen = f"the temperature rose from {before:.0f} to {after:.0f} C"
        yield StabilityWarning("heat", seen, "let it cool down, and measure again")
    if conditions.throttled:
        seen = "the machine became hot and slowed down"
        advice = "let it cool down, and measure again"
        yield StabilityWarning("hot", seen, advice)
    if conditions.on_battery:
        yield StabilityWarning("battery", "the machine runs on battery", "plug it in")
    if cores and threads > cores:
        yield StabilityWarning("threads", f"{threads} threads share {cores} cores", "use fewer threads")


CROWDED_LOOK = 2
"""Launches after which a comparison ends whose threads have too few cores."""
_ROOM = 0.30
"""Threads that all have a core for less of the time seldom keep them for a whole inference, so their times
say more about other programs. Two threads on two cores have both for 95% of the time on a quiet machine, for
13% to 20% beside a busy neighbour, for 7% to 9% beside two (bench/figures/measuring.md)."""


def crowded(cpu_ns: int, waited_ns: int, threads: int) -> StabilityWarning | None:
    """Warn of several threads that used `cpu_ns` and were ready to run for `waited_ns` more, while other
    programs had the cores. A single thread has its core often enough."""
    had = cpu_ns / (cpu_ns + waited_ns) if waited_ns else 1.0
    if threads < 2 or had**threads >= _ROOM:
        return None
    seen = f"{threads} threads need {threads} idle cores, but waited for one {1 - had:.0%} of the time"
    return StabilityWarning("crowded", seen, "measure with 1 thread, or stop other programs")


def latency_warnings(rounds: Rounds) -> tuple[StabilityWarning, ...]:
    return tuple(_warnings(rounds, "round", "set runs to 10 or more", ", or measure more rounds"))


def launch_warnings(launches: Launches) -> tuple[StabilityWarning, ...]:
    """Warnings about one experiment of a lockstep run; each launch is one process."""
    return tuple(_warnings(counted(launches), "launch", "raise the budget (--budget)", ""))


def _warnings(rounds: Rounds, unit: str, longer: str, apart: str) -> Iterator[StabilityWarning]:
    """`unit` names one process, `longer` says how to time more, `apart` what helps if processes differ."""
    finished = [latencies for latencies in rounds if len(latencies)]
    if not finished:
        yield StabilityWarning("nothing", "no latency was measured", "look at the runner's log")
        return
    summary = summarize([value for process in finished for value in process])
    typical = round_typical(finished)
    if len(finished) < EXACT_ROUNDS:
        seen = f"only {plural(len(finished), unit)} {'was' if len(finished) == 1 else 'were'} measured"
        yield StabilityWarning("rounds", seen, f"measure at least {EXACT_ROUNDS}")
    if (fewest := min(map(len, finished))) < 5:
        seen = f"a process timed only {plural(fewest, 'inference')}"
        yield StabilityWarning("runs", seen, longer)
    if (slower := _first_is_slow(finished)) is not None:
        seen = f"the first inference after the warm-up of a process is {slower:.0%} slower"
        yield StabilityWarning("warmup", seen, "raise --warmup (in a config: warmup)")
    if summary.robust_cv > _WIDE_SPREAD:
        seen = f"latencies vary by {summary.robust_cv:.0%}"
        yield StabilityWarning("spread", seen, "stop other programs, or pin the CPUs")
    if len(typical) >= 3 and (spread := float(typical.std(ddof=1) / typical.mean())) > _WIDE_ROUNDS:
        seen = f"medians of processes have a standard deviation of {spread:.0%}"
        yield StabilityWarning("processes", seen, f"pin the CPUs{apart}")
    if len(summary.outliers) > max(2.0, _MANY_OUTLIERS * summary.count):
        seen = f"{len(summary.outliers)} of {summary.count} latencies are outliers"
        yield StabilityWarning("outliers", seen, "stop other programs; many outliers shift the median, too")
    drift = find_drift(typical) or summary.drift
    if drift is not None and drift.found:
        way = "slower" if drift.relative_change > 0 else "faster"
        seen = f"latencies became {abs(drift.relative_change):.0%} {way} while measuring"
        cooler = "let it cool down and check for throttling"
        advice = (
            cooler
            if drift.relative_change > 0
            else "raise --warmup (in a config: warmup), or stop other programs"
        )
        yield StabilityWarning("drift", seen, advice)
    modes = summary.bimodality
    if modes is not None and modes.found:
        groups = f"around {modes.low_mode:.4g} and {modes.high_mode:.4g} ms"
        seen = f"latencies fall in two groups, {groups} ({modes.high_share:.0%} in the slower)"
        advice = "look for two kinds of core or two clock speeds; pin the CPUs"
        yield StabilityWarning("bimodal", seen, advice)


def _first_is_slow(rounds: Rounds) -> float | None:
    """How much slower first inferences are than the rest of their process; None unless clearly slower."""
    shares = [
        process[0] / float(np.median(process[1:])) - 1
        for process in rounds
        if len(process) >= 5 and np.median(process[1:]) > 0
    ]
    slower = float(np.median(shares)) if len(shares) >= 3 else 0.0
    return slower if slower >= 0.10 else None
