"""Description of a set of latencies: centre and spread; and reasons to trust them less, with advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model_profiling.core.errors import InputError
from model_profiling.statistics.measure import EXACT_ROUNDS, Measure
from model_profiling.statistics.speedup import Rounds

Floats = npt.NDArray[np.float64]

_MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Statistics of one set of latencies, in the unit they came in (the kit uses milliseconds)."""

    count: int
    median: float
    mean: float
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
    """CV computed from the MAD: the spread without the slowest."""


def summarize(latencies: Sequence[float] | Floats) -> LatencySummary:
    """Describe `latencies`, given in the order they were measured."""
    values = np.asarray(latencies, dtype=np.float64)
    if not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise InputError("there is no latency, or one is negative or not a number", "leave out what failed")
    median = float(np.median(values))
    mad = float(np.median(np.abs(values - median)))
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    edges = (5, 10, 90, 95, 99)
    percentiles = zip(edges, np.percentile(values, edges).tolist(), strict=True)
    return LatencySummary(
        count=len(values),
        median=median,
        mean=mean,
        minimum=float(values.min()),
        maximum=float(values.max()),
        **{f"p{edge}": value for edge, value in percentiles},
        mad=mad,
        std=std,
        cv=std / mean if mean else 0.0,
        robust_cv=_MAD_TO_SIGMA * mad / median if median else 0.0,
    )


# Reasons to trust a measurement less, each with advice.

_BUSY = 0.05
"""The share of the CPU that others may take without a word."""


@dataclass(frozen=True, slots=True)
class StabilityWarning:
    """One reason to trust a measurement less: a fixed code for programs, the observation, and advice."""

    code: str
    seen: str
    """With `{}` for each of `numbers`."""
    advice: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{self.seen.format(*self.numbers)}; {self.advice}"


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What other programs did while a series was measured, and what was done about it."""

    measure: Measure
    share: float
    """Of the CPU, taken by others."""
    error: float = 0.0
    """By which share interruptions can have raised CPU times, at most."""

    @property
    def warning(self) -> StabilityWarning | None:
        if self.measure == "wall time, unchecked":
            seen = "this runner does not say whether other programs interrupted an inference"
            return StabilityWarning("unchecked", seen, "its latencies include the time that others took")
        if self.measure == "wall time" and self.share < _BUSY:
            return None
        seen, numbers = "other programs took {}% of the CPU", (round(100 * self.share),)
        done = {
            "wall time": "the inferences that they interrupted do not count",
            "cpu time": "CPU time is shown instead of wall time, "
            f"at most {max(1, round(100 * self.error))}% too long",
        }
        advice = "the latency includes the time that others took; stop them, or measure with 1 thread"
        return StabilityWarning("busy", seen, done.get(self.measure, advice), numbers)


def latency_warnings(rounds: Rounds, *, in_turns: bool = False) -> Iterator[StabilityWarning]:
    """Warn of too few measurements; each round is one process, also in launches whose programs took turns."""
    finished = [latencies for latencies in rounds if len(latencies)]
    if not finished:
        yield StabilityWarning("nothing", "no latency was measured", "look at the runner's log")
        return
    if len(finished) < EXACT_ROUNDS:
        seen = f"few {'launches' if in_turns else 'rounds'} were measured: {{}}"
        yield StabilityWarning("rounds", seen, f"measure at least {EXACT_ROUNDS}", (len(finished),))
    if (fewest := min(map(len, finished))) < 5:
        longer = "raise the budget (--budget)" if in_turns else "set runs to 10 or more"
        yield StabilityWarning("runs", "a process timed few inferences: {}", longer, (fewest,))
