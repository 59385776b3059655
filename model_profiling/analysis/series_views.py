"""Views of a series: its calls, how near operators come to the roof, the modules as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from model_profiling.analysis.attribution import RunGroup, Share
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.category import MATRIX

# The calls of a run in their order, what each takes beside its operators, and what one less would save.


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
        """The calls of operators that keep each two neighbouring calls of delegates apart."""
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
        """How many calls of delegates join another when they take over the calls `taken`; `aside` parts
        none."""
        gaps = [[number for number in gap if number not in aside] for gap in self.gaps]
        return sum(bool(gap) and all(number in taken for number in gap) for gap in gaps)

    def saved_ms(self, joined: int, taken: Collection[int]) -> float:
        """What is saved around operators when so many calls of delegates vanish and the calls `taken` do."""
        beside = sum(max(0.0, call.beside_ns) for call in self.calls if call.number in taken)
        between = max(0.0, self.between_ns) / max(1, len(self.calls))
        return (beside + joined * self.entering_ns + (joined + len(taken)) * between) / 1e6

    @property
    def entering_ns(self) -> float:
        """What entering and leaving a delegate takes: the part that does not grow with the operators of a
        call, and never more than in the cheapest call."""
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
    inside = Counter(node.call for node in first.operators)
    return Calls(
        tuple(
            Call(
                node.call,
                node.call_kind == "delegate",
                inside[node.call],
                # Where a kernel has no event of its own, its call is the operator.
                0.0 if node.share is Share.OPERATOR else float(beside[node.column]),
            )
            for node in sorted(first.nodes, key=lambda node: node.call)
            if node.level == "call" and node.call_kind in ("delegate", "operator")
        ),
        float(beside[-1]),
    )


def _alike(series: SeriesAnalysis) -> Iterator[tuple[RunGroup, Sequence[int]]]:
    """The typical runs of the first round's most common structure, in every round; all where none is
    typical."""
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


# How near each operator comes to what the machine can do, by arithmetic and by memory traffic.
# The roof is either supplied or the best that operators of the same dump reached. The second is only what
# has been seen: the machine may do better, so an operator near it is not proven fast, but one far below is
# slow.

_SHORTEST_NS = 20_000
"""Delegates count whole microseconds: below this a rate is mostly rounding."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Peak rates; `source` says how they are known."""

    gflops: float
    gbytes_per_s: float
    source: Literal["best seen in this dump", "supplied"]


@dataclass(frozen=True, slots=True)
class RoofGap:
    """One operator under the roof."""

    operator: Operator
    efficiency: float
    """Achieved over attainable, 1 is on the roof."""

    @property
    def most_saved(self) -> float:
        """The part of its time that would vanish on the roof, from 0 to 1."""
        return max(0.0, 1 - self.efficiency)


def seen_roofline(operators: Sequence[Operator]) -> Roofline | None:
    """The roof that the operators themselves show, or None where no program gives their cost."""
    long_enough = [operator for operator in operators if operator.times.median_ns >= _SHORTEST_NS]
    flops = [rate for operator in long_enough if operator.category in MATRIX and (rate := operator.gflops)]
    traffic = [rate for operator in long_enough if (rate := operator.gbytes_per_s)]
    if not flops or not traffic:
        return None
    return Roofline(max(flops), max(traffic), "best seen in this dump")


def roof_gaps(operators: Sequence[Operator], roof: Roofline) -> tuple[RoofGap, ...]:
    """Every operator whose rate is known, the furthest below the roof first."""
    gaps = []
    for operator in operators:
        if operator.times.median_ns < _SHORTEST_NS or not operator.source.bytes_moved:
            continue
        traffic = (operator.gbytes_per_s or 0.0) / roof.gbytes_per_s
        arithmetic = (operator.gflops or 0.0) / roof.gflops if operator.category in MATRIX else 0.0
        # The nearer roof is the one that binds.
        gaps.append(RoofGap(operator, efficiency=min(1.0, max(traffic, arithmetic))))
    return tuple(sorted(gaps, key=lambda gap: gap.efficiency))


# The model's modules as a tree, with the operators that each holds: what a flame graph is drawn of.

LOWERING, BACKEND = "inserted by lowering", "added by the backend"
THE_MODEL, UNKNOWN = "the model itself", "place not known"
_WITHOUT_MODULE = {"lowering": LOWERING, "backend": BACKEND, "model": THE_MODEL, "unknown": UNKNOWN}
_DEEPEST = 40
"""Parts of a path that become modules of their own; nobody's model is deeper, a damaged record may be."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or a group of operators that no module holds (its name then says which)."""

    path: str
    """`features.0`; empty for the whole model."""
    name: str
    operators: tuple[tuple[Operator, ...], ...]
    """For each side, those inside it, however deep."""
    children: tuple[Module, ...]
    """In the order they first run."""

    def every(self) -> Iterator[Module]:
        """Itself and all below it, each before what it holds."""
        yield self
        for child in self.children:
            yield from child.every()


def module_tree(*sides: Sequence[Operator]) -> Module:
    """The modules of one series, or of two side by side."""
    members: dict[tuple[str, ...], list[list[Operator]]] = {(): [[] for _ in sides]}
    for side, operators in enumerate(sides):
        for operator in operators:
            parts = module_parts(operator)
            for depth in range(len(parts) + 1):
                members.setdefault(parts[:depth], [[] for _ in sides])[side].append(operator)
    below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for parts in members:
        if parts:
            below.setdefault(parts[:-1], []).append(parts)
    return _module((), members, below)


def _module(
    parts: tuple[str, ...],
    members: dict[tuple[str, ...], list[list[Operator]]],
    below: dict[tuple[str, ...], list[tuple[str, ...]]],
) -> Module:
    return Module(
        path=".".join(parts),
        name=parts[-1] if parts else "",
        operators=tuple(map(tuple, members[parts])),
        children=tuple(_module(child, members, below) for child in below.get(parts, ())),
    )


def module_parts(operator: Operator) -> tuple[str, ...]:
    """The modules around an operator, the outermost first; where none is, what is known instead."""
    if operator.source.module_path:
        return tuple(operator.source.module_path.split(".", _DEEPEST))
    return (_WITHOUT_MODULE[operator.origin],)
