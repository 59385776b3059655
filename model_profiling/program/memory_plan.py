"""What lives in planned memory, and in a delegate's workspace, at the moment when they hold most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.records import Delegate, Instruction, Method, SourceRef

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class LiveTensor:
    bytes: int
    layer: str
    """The layer that computes it; `an input`, or empty if unknown."""
    line: str


@dataclass(frozen=True, slots=True)
class LivePeak:
    """The step of a method, or of one of its delegates, at which the most bytes are alive."""

    method: str
    delegate: int | None
    """None: planned memory."""
    bytes: int
    tensors: tuple[LiveTensor, ...]
    """The largest, in this order."""


Step = tuple[Iterable[int], Iterable[int]]
"""Ids of the values that it reads, and of those that it writes."""


def most_alive(steps: Sequence[Step], sizes: Mapping[int, int], kept: Iterable[int]) -> tuple[int, list[int]]:
    """Return the most bytes alive at once, and the ids of those values, the largest first. A value lives
    from the step that writes it (the first, if none does) to the last that reads it; `kept` ones to the
    end."""
    first: dict[int, int] = {}
    last = dict.fromkeys(kept, len(steps) - 1)
    for place, (reads, writes) in enumerate(steps):
        for number in reads:
            first.setdefault(number, 0)
            last[number] = max(place, last.get(number, 0))
        for number in writes:
            first.setdefault(number, place)
            last[number] = max(place, last.get(number, 0))
    change = [0] * (len(steps) + 1)
    for number in first.keys() & sizes.keys():
        change[first[number]] += sizes[number]
        change[last[number] + 1] -= sizes[number]
    alive, most, at = 0, 0, 0
    for place, each in enumerate(change):
        alive += each
        if alive > most:
            most, at = alive, place
    there = [number for number in first.keys() & sizes.keys() if first[number] <= at <= last[number]]
    return most, sorted(there, key=lambda number: (-sizes[number], number))


def planned_peak(graph: ProgramGraph, method: Method) -> LivePeak:
    """Return what lives in a method's planned memory when it holds most."""
    sizes = dict(method.planned)
    steps = [(step.input_ids, step.output_ids) for step in method.instructions]
    most, alive = most_alive(steps, sizes, method.output_ids)
    made = {number: step for step in method.instructions for number in step.output_ids}

    def described(number: int) -> LiveTensor:
        step = made.get(number)
        place = _place(_computed_by(graph, method, step, number)) if step else ("an input", "")
        return LiveTensor(sizes[number], *place)

    return LivePeak(method.name, None, most, tuple(map(described, alive[:_SHOWN])))


def workspace_peak(graph: ProgramGraph, method: Method) -> LivePeak | None:
    """Return what lives in the workspace of the delegate that needs most, by its graph: delegates run one
    after another and share it. None if no graph is known."""
    peaks = (_delegate_peak(graph, method, delegate) for delegate in method.delegates if delegate.nodes)
    return max(peaks, key=lambda peak: peak.bytes, default=None)


def _delegate_peak(graph: ProgramGraph, method: Method, delegate: Delegate) -> LivePeak:
    outside = {number for _, number in delegate.arguments}
    made = {number: node for node in delegate.nodes for number in node.output_ids}
    sizes = {
        number: tensor.nbytes
        for node in delegate.nodes
        for number, tensor in zip(node.output_ids, node.outputs, strict=True)
        if number not in outside
    }
    steps = [(node.input_ids, node.output_ids) for node in delegate.nodes]
    most, alive = most_alive(steps, sizes, ())
    record = graph.record
    tensors = tuple(
        LiveTensor(
            sizes[number], *_place(record.ref(method.name, made[number].debug_handle) if record else None)
        )
        for number in alive[:_SHOWN]
    )
    return LivePeak(method.name, delegate.index, most, tensors)


def _computed_by(graph: ProgramGraph, method: Method, step: Instruction, number: int) -> SourceRef | None:
    """Return the place of what computes a value: of the node, if a delegate with a known graph does."""
    if graph.record is None:
        return None
    if step.kind == "delegate":
        delegate = method.delegates[step.delegate]
        place = (*step.input_ids, *step.output_ids).index(number)
        inside = dict(delegate.arguments).get(place)
        node = next((node for node in delegate.nodes if inside in node.output_ids), None)
        return graph.record.ref(method.name, node.debug_handle) if node else None
    return next(iter(graph.record.refs_of_instruction(method.name, step.instruction_id)), None)


def _place(ref: SourceRef | None) -> tuple[str, str]:
    return (ref.layer, ref.short_line) if ref else ("", "")
