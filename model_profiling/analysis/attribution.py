"""Builds the tree of each run's events and computes self times: where every nanosecond went.

`Method::execute` holds calls (`OPERATOR_CALL`, `DELEGATE_CALL`, ...), a call holds the operators that ran in
it. Self time is an event's duration minus that of its direct children, so a run's self times add up to its
end-to-end time exactly. The runs of a dump share a few structures; each is computed once for all its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_profiling.config.series import Diagnostic
from model_profiling.core.errors import FormatError
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.formatting import plural
from model_profiling.etdump import EventTable
from model_profiling.etdump.reader import DELEGATE_CALL

Bools = NDArray[np.bool_]

EXECUTE = "Method::execute"
CALLS = {
    "OPERATOR_CALL": "operator",
    DELEGATE_CALL: "delegate",
    "MOVE_CALL": "move",
    "JF_CALL": "jump",
    "FREE_CALL": "free",
}


class Share(str, Enum):
    """What an event's self time is counted as."""

    OPERATOR = "operator"
    """An operator's own time, counted in its category."""
    FRAMEWORK = "framework"
    """The runtime's own work: between calls, preparing a call, moving and freeing values. Also the time of a
    delegate call around its operators, where their start and end are known."""
    DELEGATE = "delegate"
    """Inside a delegate call, but in none of the operators it reported."""
    OPAQUE = "opaque"
    """A delegate call that reported no operators, or an event that belongs to nothing known."""


@dataclass(frozen=True, slots=True)
class Node:
    """One event of a structure; `column` is its index in the matrices of `RunGroup`."""

    column: int
    name: str
    level: str
    """method, call, operator or other."""
    share: Share
    parent: int
    """Column of the enclosing event; -1 for `Method::execute`."""
    call: int
    """Number of its call within the run, from 0; -1 outside calls."""
    position: int
    """Number of the operator within its call, from 0; -1 for other events."""
    call_kind: str
    """operator, delegate, move, jump or free; empty outside calls."""
    occurrence: int
    """How many calls of the same instruction came before in the run (loops repeat instructions)."""
    chain_index: int
    instruction_id: int
    delegated: bool


@dataclass(frozen=True, slots=True)
class RunGroup:
    """Runs with the same events in the same order; matrices have a row per run and a column per event."""

    nodes: tuple[Node, ...]
    runs: Int64
    """Index of each run among the dump's counted runs, in file order."""
    blocks: Int64
    start_ns: Int64
    duration_ns: Int64
    self_ns: Int64
    tracing_ns: Int64
    """For each run, time of reporting to the tracer after the operators of delegate calls, where known."""

    @property
    def e2e_ns(self) -> Int64:
        """End-to-end time of each run: its `Method::execute`, the last event."""
        return self.duration_ns[:, -1]

    @property
    def operators(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.share is Share.OPERATOR)


@dataclass(frozen=True, slots=True)
class Attribution:
    """The counted runs of a dump, grouped by structure, largest group first."""

    source: str
    groups: tuple[RunGroup, ...]
    numbers: Int64
    """Index of each run among all runs in the file."""
    block_names: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    """Without a series: a dump's table does not know which one it belongs to."""

    @property
    def run_count(self) -> int:
        return sum(len(group.runs) for group in self.groups)

    @property
    def event_count(self) -> int:
        return sum(group.duration_ns.size for group in self.groups)

    def of_runs(self, times_of: Callable[[RunGroup], Int64]) -> Int64:
        """The values of `times_of` for every run, in file order."""
        times = np.zeros(self.run_count, np.int64)
        for group in self.groups:
            times[group.runs] = times_of(group)
        return times

    def e2e_ns(self) -> Int64:
        return self.of_runs(lambda group: group.e2e_ns)

    def total_ns(self, *shares: Share) -> Int64:
        def total(group: RunGroup) -> Int64:
            columns = [node.column for node in group.nodes if node.share in shares]
            return np.asarray(group.self_ns[:, columns].sum(axis=1))

        return self.of_runs(total)


def counted_runs(runs: int, warmup_runs: int = 0, turn_length: int = 0) -> Int64:
    """Indexes of the runs after `warmup_runs`, without the first of each turn, which finds another program in
    the caches; a turn of one run counts."""
    numbers = np.arange(warmup_runs, runs, dtype=np.int64)
    return numbers[(numbers - warmup_runs) % turn_length > 0] if turn_length > 1 else numbers


def attribute(
    table: EventTable, warmup_runs: int = 0, turn_length: int = 0, exact_calls: Bools | None = None
) -> Attribution:
    """Attribute every nanosecond of every counted run; `exact_calls` marks calls with true operator times."""
    exact = np.zeros(len(table), np.bool_) if exact_calls is None else exact_calls
    last = np.flatnonzero(table.name == table.name_index(EXECUTE)).astype(np.int64)
    if not len(last):
        fix = "make the dump with the event tracer on and run the model at least once"
        raise FormatError(f"{table.source} has no {EXECUTE} event", fix)
    blocks = table.block[last].astype(np.int64)
    after_previous = np.concatenate(([0], last[:-1] + 1))
    first = np.maximum(table.blocks.first_event[blocks], after_previous)
    lost = _lost_calls(table, first, last)
    numbers = counted_runs(len(last), warmup_runs, turn_length)
    if warmup_runs >= len(last):
        what = f"{table.source} has {len(last)} runs, all of them warm-up runs"
        raise FormatError(what, "measure more runs than the number of warm-up runs")
    if not len(numbers):
        what = (
            f"{table.source} has only {plural(len(last), 'run')} of a turn of {turn_length}, and none of "
            "them is timed"
        )
        raise FormatError(what, "measure again")
    first, last, blocks = first[numbers], last[numbers], blocks[numbers]
    groups = []
    lengths = last - first + 1
    for length in np.unique(lengths):
        runs = np.flatnonzero(lengths == length)
        events = first[runs, None] + np.arange(length)
        for members in _same_structure(table, events):
            groups.append(_group(table, exact, events[members], runs[members], blocks[runs[members]]))
    groups.sort(key=lambda group: (-len(group.runs), group.runs[0]))
    return Attribution(
        source=table.source,
        groups=tuple(groups),
        numbers=numbers,
        block_names=tuple(table.names[index] if index >= 0 else "" for index in table.blocks.name),
        warnings=tuple(_warnings(groups, lost)),
    )


def _same_structure(table: EventTable, events: Int64) -> list[Int64]:
    """Split runs of one length (rows of event indexes) into sets whose events agree in all but time."""
    columns = (table.name, table.chain_index, table.instruction_id, table.delegate_id)
    if all(bool((column[events] == column[events[0]]).all()) for column in columns):
        return [np.arange(len(events))]
    # Rare: distinguish structures by a 64-bit fingerprint of each run.
    size = (len(columns), events.shape[1])
    weights = np.random.default_rng(0).integers(1, 2**63, size, dtype=np.uint64) | 1
    prints = np.zeros(len(events), np.uint64)
    for column, weight in zip(columns, weights, strict=True):
        prints += (column[events].astype(np.int64).view(np.uint64) * weight).sum(axis=1, dtype=np.uint64)
    return [np.flatnonzero(prints == found) for found in np.unique(prints)]


def _group(table: EventTable, exact: Bools, events: Int64, runs: Int64, blocks: Int64) -> RunGroup:
    always_exact: Bools = np.logical_and.reduce(exact[events], axis=0)
    nodes = _tree(table, events[0], always_exact)
    duration = table.duration_ns[events]
    own = duration.copy()
    tracing = np.zeros(len(events), np.int64)
    for parent, inside in children_of(nodes).items():
        own[:, parent] -= duration[:, inside].sum(axis=1)
        if nodes[parent].call_kind == "delegate" and nodes[parent].share is Share.FRAMEWORK:
            after = table.end_ns[events[:, parent]] - table.end_ns[events[:, inside]].max(axis=1)
            tracing += np.clip(after, 0, np.maximum(own[:, parent], 0))
    return RunGroup(tuple(nodes), runs, blocks, table.start_ns[events], duration, own, tracing)


def children_of(nodes: Iterable[Node]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for node in nodes:
        if node.parent >= 0:
            children.setdefault(node.parent, []).append(node.column)
    return children


class _Place(NamedTuple):
    """An event's place in the tree of its run; the fields are those of `Node`."""

    parent: int
    call: int = -1
    position: int = -1
    call_kind: str = ""
    occurrence: int = 0


def _tree(table: EventTable, events: Int64, exact: Bools) -> list[Node]:
    """The structure of one run. The runtime writes an event when it ends: children come before parents."""
    names = [table.names[index] if index >= 0 else "" for index in table.name[events]]
    places = list(zip(table.chain_index[events].tolist(), table.instruction_id[events].tolist(), strict=True))
    delegated = table.is_delegated[events].tolist()
    execute = len(names) - 1
    # Events outside calls are directly inside `Method::execute`.
    found = [*[_Place(execute)] * execute, _Place(-1)]
    seen: dict[tuple[int, int], int] = {}
    pending: list[int] = []
    calls = 0
    for column in range(execute):
        if delegated[column] or names[column] not in CALLS:
            pending.append(column)
            continue
        kind = CALLS[names[column]]
        inside = [child for child in pending if places[child] == places[column]]
        pending = [child for child in pending if places[child] != places[column]]
        occurrence = seen.get(places[column], 0)
        seen[places[column]] = occurrence + 1
        alone = not inside and kind == "operator"
        found[column] = _Place(execute, calls, 0 if alone else -1, kind, occurrence)
        for position, child in enumerate(inside):
            around = column
            if not delegated[child]:
                # Kernels call kernels: the nearest later event of the same call whose time encloses it.
                start, end = table.start_ns[events[child]], table.end_ns[events[child]]
                later = (other for other in inside[position + 1 :] if not delegated[other])
                encloses = (
                    other
                    for other in later
                    if table.start_ns[events[other]] <= start and end <= table.end_ns[events[other]]
                )
                around = next(encloses, column)
            found[child] = _Place(around, calls, position, kind, occurrence)
        calls += 1
    has_children = {place.parent for place in found}
    nodes = []
    for column, place in enumerate(found):
        level, share = _counted_as(place, execute, column in has_children, bool(exact[column]))
        chain, instruction = places[column]
        nodes.append(
            Node(
                column=column,
                name=names[column],
                level=level,
                share=share,
                chain_index=chain,
                instruction_id=instruction,
                delegated=delegated[column],
                **place._asdict(),
            )
        )
    return nodes


def _counted_as(place: _Place, execute: int, has_children: bool, exact: bool) -> tuple[str, Share]:
    if place.parent < 0:
        return "method", Share.FRAMEWORK
    if place.call < 0:
        return "other", Share.OPAQUE
    if place.parent != execute:
        return "operator", Share.OPERATOR
    if place.call_kind == "delegate" and not (exact and has_children):
        return "call", Share.DELEGATE if has_children else Share.OPAQUE
    # A kernel without an event of its own is visible only as its call.
    kernel = place.call_kind == "operator" and not has_children
    return "call", Share.OPERATOR if kernel else Share.FRAMEWORK


def _lost_calls(table: EventTable, first: Int64, last: Int64) -> int:
    """Count the calls of a run that never finished: those between no run's first and last event."""
    edges = np.zeros(len(table) + 1, np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, last + 1, -1)
    left = table.name[np.cumsum(edges)[:-1] == 0]
    return sum(index >= 0 and table.names[index] in CALLS for index in left.tolist())


def _warnings(groups: Sequence[RunGroup], lost: int) -> Iterator[Diagnostic]:
    if len(groups) > 1:
        sizes = ", ".join(str(len(group.runs)) for group in groups)
        yield Diagnostic(None, "structure", f"runs differ in structure: {len(groups)} groups of {sizes} runs")
    if lost:
        seen = f"{lost} calls belong to a run that never finished; they are left out"
        yield Diagnostic(None, "cut_short", seen)
    strange = sorted({node.name for group in groups for node in group.nodes if node.level == "other"})
    if strange:
        seen = f"these events are outside every call and are counted as unattributed: {', '.join(strange)}"
        yield Diagnostic(None, "outside", seen)
    delegates = ((group, node) for group in groups for node in group.nodes if node.share is Share.DELEGATE)
    over = sorted({node.call for group, node in delegates if (group.self_ns[:, node.column] < 0).any()})
    if over:
        seen = (
            f"operators of delegate calls {', '.join(map(str, over))} add up to more than the call itself "
            "(they overlap, or the delegate uses another clock); their overhead is shown as negative"
        )
        yield Diagnostic(None, "overlap", seen)
