"""The calls of a run in their order, what each takes beside its operators, and what one less would save."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.attribution import RunGroup, Share
from model_profiling.analysis.series import SeriesAnalysis


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the runtime."""

    number: int
    """As operators name it."""
    delegate: bool
    """Of a delegate, or else of an operator outside."""
    operators: int
    beside_ns: float
    """What it takes beside its operators, in the typical runs on average."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the most common structure of a series."""

    calls: tuple[Call, ...]
    between_ns: float
    """What the runtime takes between them all."""

    @property
    def gaps(self) -> list[tuple[int, ...]]:
        """The calls of operators between each two neighbouring calls of delegates, where there are any: what
        keeps those two apart. Neighbours with nothing between them were parted by the partitioner."""
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
        """Between how many neighbouring calls of delegates some of the calls `numbers` stand."""
        return sum(any(number in numbers for number in gap) for gap in self.gaps)

    def joined(self, taken: Collection[int], aside: Collection[int] = ()) -> int:
        """How many calls of delegates join another when they take over the calls `taken`; those `aside` wait
        for no delegate and part none."""
        gaps = [[number for number in gap if number not in aside] for gap in self.gaps]
        return sum(bool(gap) and all(number in taken for number in gap) for gap in gaps)

    def saved_ms(self, joined: int, taken: Collection[int]) -> float:
        """What is saved around operators when so many calls of delegates vanish and the calls `taken` do."""
        beside = sum(max(0.0, call.beside_ns) for call in self.calls if call.number in taken)
        between = max(0.0, self.between_ns) / max(1, len(self.calls))
        return (beside + joined * self.entering_ns + (joined + len(taken)) * between) / 1e6

    @property
    def entering_ns(self) -> float:
        """What entering and leaving a delegate takes, whatever runs in it: the part of what calls take beside
        their operators that does not grow with their operators, and never more than in the cheapest call."""
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
    """The calls of `series`, timed in its typical runs."""
    groups = list(_alike(series))
    first = groups[0][0]
    beside = np.zeros(len(first.nodes))
    runs = 0
    for group, rows in groups:
        beside += group.self_ns[rows].sum(axis=0)
        runs += len(rows)
    beside /= max(1, runs)
    inside: dict[int, int] = {}
    for node in first.operators:
        inside[node.call] = inside.get(node.call, 0) + 1
    return Calls(
        tuple(
            Call(
                node.call,
                node.call_kind == "delegate",
                inside.get(node.call, 0),
                # Where a kernel has no event of its own, its call is the operator.
                0.0 if node.share is Share.OPERATOR else float(beside[node.column]),
            )
            for node in sorted(first.nodes, key=lambda node: node.call)
            if node.level == "call" and node.call_kind in ("delegate", "operator")
        ),
        float(beside[-1]),
    )


def _alike(series: SeriesAnalysis) -> Iterator[tuple[RunGroup, Sequence[int]]]:
    """The runs of the first round's most common structure, in every round that has it: the typical ones, or
    all of the first round where none is."""
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
