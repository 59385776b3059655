"""Events of dumps as nested slices of time, and by instruction of the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.attribution import Node, children_of
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.summary import DumpAnalysis

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


@dataclass(frozen=True, slots=True)
class RunSlices:
    """One run, its slices in the order they begin; the first is the run itself."""

    dump: DumpAnalysis
    number: int
    """Index among all runs of its dump's file."""
    slices: tuple[Slice, ...]


def slice_runs(series: SeriesAnalysis, most: int) -> Iterator[RunSlices]:
    """At most `most` runs of a series, evenly chosen, in the order they were made."""
    every = range(series.runs)
    chosen = every if series.runs <= most else np.linspace(0, series.runs - 1, most).astype(int).tolist()
    wanted = set(chosen)
    before = 0
    for dump in series.rounds:
        places = {
            int(run): (structure, row)
            for structure, group in enumerate(dump.attribution.groups)
            for row, run in enumerate(group.runs)
        }
        for run in range(dump.runs):
            if before + run in wanted:
                structure, row = places[run]
                number = int(dump.attribution.numbers[run])
                yield RunSlices(dump, number, tuple(_slices(dump, structure, row)))
        before += dump.runs


def _slices(dump: DumpAnalysis, structure: int, row: int) -> Iterator[Slice]:
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
