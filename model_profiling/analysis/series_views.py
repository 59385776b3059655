"""Views of a series: its calls, runs as nested slices, instructions; what would make its program smaller in
memory, and how its latency follows the number of threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model_profiling.analysis.attribution import Node, RunGroup, Share, children_of
from model_profiling.analysis.operators import DumpAnalysis, Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import listing, size
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.memory_plan import LivePeak, planned_peak, workspace_peak
from model_profiling.program.records import Method
from model_profiling.runs.costs import ARENAS, PROGRAM, WORKSPACE, Memory

# The calls of a run in order, with their overheads.


@dataclass(frozen=True, slots=True)
class Call:
    number: int
    """The number that `Operator.call` uses."""
    delegate: bool
    """A call of a delegate; otherwise of an operator outside delegates."""
    operators: int
    beside_ns: float
    """Mean time beside its operators, in the typical runs."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the most common structure of a series."""

    calls: tuple[Call, ...]
    between_ns: float
    """Time of the runtime between all calls."""

    @property
    def gaps(self) -> list[tuple[int, ...]]:
        """For each two neighbouring delegate calls, the operator calls that separate them."""
        gaps: list[tuple[int, ...]] = []
        between: list[int] = []
        entered = False
        for call in self.calls:
            if not call.delegate:
                between.append(call.number)
                continue
            if entered and between:
                gaps.append(tuple(between))
            between, entered = [], True
        return gaps

    def parted(self, numbers: Collection[int]) -> int:
        """How many pairs of neighbouring delegate calls are separated by some of the calls `numbers`."""
        return sum(any(number in numbers for number in gap) for gap in self.gaps)

    def joined(self, taken: Collection[int], aside: Collection[int] = ()) -> int:
        """How many delegate calls merge if delegates take over the calls `taken`; `aside` separates none."""
        gaps = [[number for number in gap if number not in aside] for gap in self.gaps]
        return sum(bool(gap) and all(number in taken for number in gap) for gap in gaps)

    def saved_ms(self, joined: int, taken: Collection[int]) -> float:
        """Overhead saved if `joined` delegate calls and the calls `taken` disappear."""
        beside = sum(max(0.0, call.beside_ns) for call in self.calls if call.number in taken)
        between = max(0.0, self.between_ns) / max(1, len(self.calls))
        return (beside + joined * self.entering_ns + (joined + len(taken)) * between) / 1e6

    @property
    def entering_ns(self) -> float:
        """Cost of entering and leaving a delegate: the part that does not grow with its operators, and at
        most that of the cheapest call."""
        inside = [call for call in self.calls if call.delegate and call.operators]
        if not inside:
            return 0.0
        sizes = np.array([call.operators for call in inside], np.float64)
        beside = np.array([call.beside_ns for call in inside], np.float64)
        least = float(beside.min())
        if len(np.unique(sizes)) > 1:
            apart = sizes - sizes.mean()
            slope = float((apart * (beside - beside.mean())).sum() / (apart**2).sum())
            least = min(least, float(beside.mean() - max(0.0, slope) * sizes.mean()))
        return max(0.0, least)


def calls_of(series: SeriesAnalysis) -> Calls:
    groups = list(_alike(series))
    first = groups[0][0]
    beside = np.zeros(len(first.nodes))
    runs = 0
    for group, rows in groups:
        beside += group.self_ns[rows].sum(axis=0)
        runs += len(rows)
    beside *= series.scale / max(1, runs)
    inside = Counter(node.call for node in first.operators)
    return Calls(
        tuple(
            Call(
                node.call,
                node.call_kind == "delegate",
                inside[node.call],
                # A kernel without an event of its own: the call is the operator.
                0.0 if node.share is Share.OPERATOR else float(beside[node.column]),
            )
            for node in sorted(first.nodes, key=lambda node: node.call)
            if node.level == "call" and node.call_kind in ("delegate", "operator")
        ),
        float(beside[-1]),
    )


def _alike(series: SeriesAnalysis) -> Iterator[tuple[RunGroup, Sequence[int]]]:
    """Typical runs, in all rounds, of the first round's main structure; if none, all of the first round's."""
    first = series.first.attribution.groups[0]
    typical, before, found = set(series.typical.tolist()), 0, False
    for dump in series.rounds:
        for group in dump.attribution.groups:
            same = group.nodes == first.nodes
            rows = [row for row, run in enumerate(group.runs.tolist()) if before + run in typical]
            if same and rows:
                found = True
                yield group, rows
        before += dump.runs
    if not found:
        yield first, range(len(first.runs))


# Runs as nested slices of time. A runner counts time from its own start. Where programs took turns, the
# journal has the start of each turn on the machine's clock; runs are placed there, so that turns are seen to
# alternate.

_LATEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Slice:
    """One event of one run, in its dump's clock; it lies within the enclosing slice."""

    node: Node
    operator: Operator | None
    depth: int
    begin_ns: int
    end_ns: int
    duration_ns: int
    """As recorded: more than `end_ns - begin_ns` where the event does not fit into the enclosing one."""
    self_ns: int


def slice_runs(series: SeriesAnalysis, most: int) -> Iterator[tuple[DumpAnalysis, int, Iterator[Slice]]]:
    """At most `most` runs of a series, evenly chosen, in the order they were made: the dump of each, its
    number in there, and its slices."""
    every = range(series.runs)
    chosen = every if series.runs <= most else np.linspace(0, series.runs - 1, most).astype(int).tolist()
    wanted = set(chosen)
    before = 0
    for dump in series.rounds:
        for run in range(dump.runs):
            if before + run in wanted:
                yield dump, int(dump.attribution.numbers[run]), slices_of(dump, run)
        before += dump.runs


def slices_of(dump: DumpAnalysis, run: int) -> Iterator[Slice]:
    """The slices of one run that counts, in the order they begin; the first is the run itself."""
    runs = enumerate(np.flatnonzero(group.runs == run) for group in dump.attribution.groups)
    structure, row = next((structure, int(rows[0])) for structure, rows in runs if len(rows))
    group = dump.attribution.groups[structure]
    owners = dump.operator_of_event[structure].tolist()
    begin, length, own = (
        matrix[row].tolist() for matrix in (group.start_ns, group.duration_ns, group.self_ns)
    )
    inside = children_of(group.nodes)
    root = len(group.nodes) - 1
    first = begin[root]
    open_nodes = [(root, 0, first, min(first + max(length[root], 0), _LATEST))]
    while open_nodes:
        column, depth, lower, upper = open_nodes.pop()
        operator = dump.operators[owners[column]] if owners[column] >= 0 else None
        yield Slice(group.nodes[column], operator, depth, lower, upper, length[column], own[column])
        at = lower
        placed = []
        for child in sorted(inside.get(column, ()), key=begin.__getitem__):
            # A delegate times its operators with another clock: cut off what reaches beyond its call.
            left = min(max(begin[child], at), upper)
            at = min(max(begin[child] + length[child], left), upper)
            placed.append((child, depth + 1, left, at))
        open_nodes += reversed(placed)


Place = tuple[str, int, int]
"""Method, chain and instruction; the method is empty without a program."""


def instruction_ms(series: SeriesAnalysis) -> Mapping[Place, float]:
    """Mean milliseconds of each instruction in the typical runs, with overheads; repetitions are summed."""
    is_typical = np.zeros(series.runs, bool)
    is_typical[series.typical] = True
    total_ns: Counter[Place] = Counter()
    before = 0
    for dump in series.rounds:
        for structure, group in enumerate(dump.attribution.groups):
            owners = (owner for owner in dump.operator_of_event[structure].tolist() if owner >= 0)
            method = next((dump.operators[owner].method for owner in owners), "")
            chosen = is_typical[before + group.runs]
            for node in group.nodes:
                if node.level == "call":
                    place = method, node.chain_index, node.instruction_id
                    total_ns[place] += int(group.duration_ns[chosen, node.column].sum())
        before += dump.runs
    return {place: series.scale * total / len(series.typical) / 1e6 for place, total in total_ns.items()}


# Memory.

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
    def advice(self) -> Iterator[str]:
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
