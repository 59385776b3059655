"""How latency follows the number of threads, what does not scale, and which number to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_profiling.analysis.series import SeriesAnalysis

_ABOUT = 1.03
"""Latencies within this ratio of the best are as good: fewer threads are better."""
_SCALES = 0.5
_MATTERS = 0.05
"""The share of the time that what does not scale must have."""


@dataclass(frozen=True, slots=True)
class AtThreads:
    threads: int
    ms: float
    efficiency: float
    """Of the fewest threads: 1 is half the time with twice the threads."""
    by_category: Mapping[str, float]
    """The same of each part of an inference's time; 1 for all with the fewest threads."""


@dataclass(frozen=True, slots=True)
class ThreadCurve:
    experiment: str
    points: tuple[AtThreads, ...]
    recommended: int
    not_scaling: tuple[str, ...]
    """Categories with less than half the efficiency at the most threads, that matter there."""
    sme2_shared: bool
    """Whether the CPU has SME2, whose units its cores share, and the curve is flat."""


def thread_curve(
    experiment: str,
    measured: Sequence[tuple[int, float, SeriesAnalysis | None]],
    *,
    has_sme2: bool,
) -> ThreadCurve | None:
    """Return the curve of threads, latency and operators; None with fewer than two numbers of threads."""
    if len(measured) < 2:
        return None
    fewest, ms, first = measured[0]
    points = tuple(
        AtThreads(
            threads,
            each,
            ms / each * fewest / threads,
            _by_category(first, found, threads / fewest) if first and found else {},
        )
        for threads, each, found in measured
    )
    best = min(point.ms for point in points)
    recommended = next(point.threads for point in points if point.ms <= best * _ABOUT)
    last, found = points[-1], measured[-1][2]
    not_scaling = tuple(
        name
        for name, efficiency in last.by_category.items()
        if efficiency < _SCALES and found and (found.spent(found.parts[name]).share or 0) > _MATTERS
    )
    shared = has_sme2 and last.efficiency < _SCALES
    return ThreadCurve(experiment, points, recommended, not_scaling, shared)


def _by_category(first: SeriesAnalysis, found: SeriesAnalysis, times: float) -> dict[str, float]:
    spent = {name: (first.spent(part).ms, found.parts.get(name)) for name, part in first.parts.items()}
    return {
        name: before / found.spent(part).ms / times
        for name, (before, part) in spent.items()
        if part is not None and before > 0 and found.spent(part).ms > 0
    }
