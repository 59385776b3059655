"""metrics.json and _robust_stats.json: the figures a run measured; empty if its times are not latencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from model_profiling.config.series import Diagnostic, Pair, Series, first_of_each
from model_profiling.core.errors import FormatError
from model_profiling.core.records import JsonObject, read_record
from model_profiling.core.safe_read import is_there
from model_profiling.runs.costs import Loading, Memory
from model_profiling.runs.times import Times
from model_profiling.statistics.latency import LatencySummary
from model_profiling.statistics.measure import Measure
from model_profiling.statistics.parity import Parity
from model_profiling.statistics.speedup import Speedup, Unit

COMPUTE_AGAIN = "compute it again: sme2prof run CONFIG --analysis-only"


@dataclass(frozen=True, slots=True)
class TracerCost:
    """How much longer an inference takes with the tracer on, as a share: 0.02 is 2% longer."""

    share: float
    low: float | None = None
    high: float | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latencies of one series, in milliseconds."""

    experiment: str
    threads: int | None = None
    rounds: int = 0
    """Launches in lockstep."""
    measured: Measure = "wall time, unchecked"
    way: Literal["lockstep", "rounds"] = "rounds"
    end_to_end_ms: LatencySummary | None = None
    """Without the tracer: what a user of the model waits."""
    traced_ms: LatencySummary | None = None
    tracer_cost: TracerCost | None = None
    load_ms: float | None = None
    first_inference_ms: float | None = None
    peak_memory_bytes: int | None = None
    memory: Memory | None = None
    """None if the runner or the system does not say, as for `loading`."""
    loading: Loading | None = None

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)

    @property
    def counted_in(self) -> Unit:
        return "launch" if self.way == "lockstep" else "round"


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustStats(Latency):
    """A series' statistics and every latency by round; an empty round failed."""

    schema_version: Literal[1] = 1
    model: str = ""
    runs: int | None = None
    warmup: int | None = None
    unit: str = "ms"
    times: Times = Times.HARDWARE
    """The kit writes this file only if times are latencies."""
    end_to_end_rounds_ms: tuple[tuple[float, ...], ...]
    traced_rounds_ms: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class PairSpeedup:
    """A pair and its speedup, the one that every file and command shows."""

    label: str
    baseline: Series
    candidate: Series
    speedup: Speedup
    with_tracer: bool = False
    """Whether a side lacks latencies without the tracer."""

    @property
    def pair(self) -> Pair:
        return Pair(self.label, self.baseline, self.candidate)


@dataclass(frozen=True, slots=True)
class PairParity:
    """Whether two series computed the same; `parity` is None if unknown, and `reason` says why."""

    label: str
    baseline: Series
    candidate: Series
    parity: Parity | None = None
    reason: str = ""

    @property
    def verdict(self) -> str:
        return self.parity.verdict if self.parity else "unknown"

    @property
    def text(self) -> str:
        if self.parity is None:
            return f"not compared, {self.reason}"
        return f"{self.parity.text}{f', {self.reason}' if self.reason else ''}"


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """The content of metrics.json. No slots, because the cached property needs a `__dict__`."""

    schema_version: Literal[2] = 2
    model: str = ""
    times: Times = Times.UNKNOWN
    latencies: tuple[Latency, ...] = ()
    stability: tuple[Diagnostic, ...] = ()
    comparisons: tuple[PairSpeedup, ...] = ()
    parity: tuple[PairParity, ...] = ()

    def latency(self, series: Series) -> Latency | None:
        return self._by_series.get(series)

    @cached_property
    def _by_series(self) -> dict[Series, Latency]:
        return first_of_each((latency.series, latency) for latency in self.latencies)


def read_metrics(path: Path) -> Metrics | None:
    if not is_there(path):
        return None
    # The earlier kit kept traced times of an unknown machine, so none is a latency.
    earlier: JsonObject = {"schema_version": Metrics.schema_version}
    metrics = read_record(
        Metrics, path, COMPUTE_AGAIN, lambda content: content if "schema_version" in content else earlier
    )
    for latency in metrics.latencies:
        _check_times(path, latency)
    for pair in metrics.comparisons:
        numbers = pair.speedup.ratio, pair.speedup.low, pair.speedup.high
        if any(number is not None and not number > 0 for number in numbers):
            raise FormatError(f"{path}: the speedup of {pair.label!r} is not above 0", COMPUTE_AGAIN)
    return metrics


def read_robust_stats(path: Path) -> RobustStats:
    stats = read_record(RobustStats, path, COMPUTE_AGAIN)
    _check_times(path, stats)
    return stats


def _check_times(path: Path, latency: Latency) -> None:
    """Refuse latencies that no clock can give; computing with them would divide by 0 or give nonsense."""
    for summary in filter(None, (latency.end_to_end_ms, latency.traced_ms)):
        if not (summary.mean > 0 and 0 < summary.minimum <= summary.median <= summary.maximum):
            raise FormatError(f"{path}: {latency.series} has impossible latencies", COMPUTE_AGAIN)
