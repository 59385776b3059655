"""What would make a program smaller in memory, and how its latency follows the number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import listing, size
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.memory_plan import LivePeak, planned_peak, workspace_peak
from model_profiling.program.records import Method
from model_profiling.runs.costs import ARENAS, PROGRAM, WORKSPACE, Memory

_WORTH = 0.05
"""The share of the peak that advice must be about."""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one series, and the program that it ran, if that is known. No slots, because its
    properties are cached."""

    memory: Memory
    graph: ProgramGraph | None
    method: str

    @property
    def _program(self) -> tuple[ProgramGraph, Method] | None:
        method = self.graph.program.method(self.method or "forward") if self.graph else None
        return (self.graph, method) if self.graph and method else None

    @cached_property
    def live(self) -> tuple[tuple[str, LivePeak], ...]:
        """What lives in planned memory and in XNNPACK's workspace at their peaks, by name of the part."""
        if self._program is None:
            return ()
        peaks = (ARENAS, planned_peak(*self._program)), (WORKSPACE, workspace_peak(*self._program))
        return tuple((what, peak) for what, peak in peaks if peak is not None and peak.tensors)

    @property
    def advice(self) -> tuple[str, ...]:
        return tuple(self._advice())

    def _advice(self) -> Iterator[str]:
        memory = self.memory
        worth = memory.peak_bytes * _WORTH
        if min(memory.of(PROGRAM), memory.packed) > worth:
            when = "until XNNPACK has packed the last delegate" if memory.while_loading else "all the time"
            yield (
                f"Weights are in memory twice {when}: {size(memory.packed)} packed beside "
                f"{size(memory.of(PROGRAM))} of the mapped file. The system can drop pages of a mapped file, "
                "not those of a data loader that copies it"
            )
        for what, peak in () if memory.while_loading else self.live:
            largest = peak.tensors[0]
            if min(largest.bytes, memory.of(what)) > worth and largest.layer:
                where = ", ".join(filter(None, (largest.layer, largest.line)))
                yield f"{size(largest.bytes)} of {what} are one tensor: {where}"
        methods = self.graph.program.methods if self.graph else ()
        arenas = {method.name: sum(method.arenas) for method in methods if sum(method.arenas) > worth}
        if len(arenas) > 1:
            saved = sum(arenas.values()) - max(arenas.values())
            yield (
                f"{listing(arenas)} plan memory of their own; an app that loads all of them saves "
                f"{size(saved)} if they share it: Module(..., share_memory_arenas=true)"
            )


# Threads.

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
    experiment: str, measured: Sequence[tuple[int, float, SeriesAnalysis | None]], *, has_sme2: bool
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
