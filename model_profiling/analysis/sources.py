"""What a program and its record say about the operators of a dump: shapes, cost, place in the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.attribution import Node, RunGroup
from model_profiling.program import Delegate, EtRecord, GraphNode, Instruction, Method, Program, SourceRef
from model_profiling.program.category import Category, OperatorClass
from model_profiling.program.delegates import delegate_named, delegate_of_events, describe

Origin = Literal["model", "lowering", "backend", "unknown"]
"""Written in the model, inserted by lowering, added by the backend at run time (packing), or not known."""


NOWHERE = SourceRef()


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """One operator's place in the program and the model; empty fields are unknown."""

    origin: Origin = "unknown"
    operator: str = ""
    """The program's name for an operator outside delegates: `aten::add.out`."""
    backend: str = ""
    node_index: int = -1
    """Position in the delegate's graph."""
    node_kind: str = ""
    fused: tuple[str, ...] = ()
    """Kinds of further graph nodes that ran inside this operator."""
    debug_handle: int = -1
    input_shapes: tuple[tuple[int, ...], ...] = ()
    output_shape: tuple[int, ...] = ()
    dtype: str = ""
    kernel_size: tuple[int, int] | None = None
    groups: int = 0
    flops: int | None = None
    bytes_moved: int | None = None
    place: SourceRef = NOWHERE
    described: OperatorClass | None = None
    """What its graph node says it is; None where only its name can tell."""
    stated: tuple[Category, str] | None = None
    """Category and kind from a file that was written with the program at hand."""

    @property
    def module_path(self) -> str:
        return self.place.module_path


UNKNOWN_SOURCE = OperatorSource()


class ProgramView:
    """A program and its record, asked about the runs of a dump; either may be missing."""

    def __init__(self, program: Program | None = None, etrecord: EtRecord | None = None) -> None:
        self.program = program
        self.etrecord = etrecord
        self.misfits: list[str] = []
        """Why `program` cannot be what was run, so that it was not used."""
        self._methods: dict[int, Method | None] = {}

    def method_of(self, group: RunGroup) -> str:
        """Name of the method these runs executed; empty where no program tells."""
        method = self._method(group)
        return method.name if method else ""

    def sources(self, group: RunGroup) -> Mapping[int, OperatorSource]:
        """What is known about each operator, by its column in `group`."""
        method = self._method(group)
        known: dict[int, OperatorSource] = {}
        calls: dict[int, list[Node]] = {}
        for node in group.operators:
            calls.setdefault(node.call, []).append(node)
        instructions = method.instructions if method else ()
        steps = {(step.chain_index, step.instruction_id): step for step in instructions}
        for inside in calls.values():
            step = steps.get((inside[0].chain_index, inside[0].instruction_id))
            if inside[0].call_kind == "delegate":
                known.update(self._delegated(method, step, inside))
            elif step is not None and method is not None:
                known[inside[-1].column] = self._portable(method, step)
        return known

    def _method(self, group: RunGroup) -> Method | None:
        if id(group) not in self._methods:
            self._methods[id(group)] = self._fitting(group)
        return self._methods[id(group)]

    def _fitting(self, group: RunGroup) -> Method | None:
        """The method whose instructions are the calls of these runs."""
        if self.program is None or not self.program.methods:
            return None
        calls = {
            (node.chain_index, node.instruction_id, node.call_kind)
            for node in group.nodes
            if node.level == "call"
        }
        fitting = {
            method.name: len(
                calls & {(step.chain_index, step.instruction_id, step.kind) for step in method.instructions}
            )
            for method in self.program.methods
        }
        best = max(fitting.values())
        if best < len(calls):
            self.misfits.append(
                f"{self.program.source} is not the program that was run: "
                f"{len(calls) - best} of {len(calls)} calls do not fit; shapes and sources are left out"
            )
            return None
        chosen = [method for method in self.program.methods if fitting[method.name] == best]
        if len(chosen) == 1:
            return chosen[0]
        # Methods that are called alike: the one whose graphs leave the least over ran.
        return min(chosen, key=lambda method: (_left_over(method, group), len(method.instructions)))

    def _delegated(
        self, method: Method | None, step: Instruction | None, inside: list[Node]
    ) -> dict[int, OperatorSource]:
        names = [node.name for node in inside]
        if method is None or step is None or not 0 <= step.delegate < len(method.delegates):
            backend = delegate_of_events(names).name
            return {node.column: OperatorSource(backend=backend) for node in inside}
        delegate = method.delegates[step.delegate]
        only_backend = OperatorSource(backend=delegate.backend)
        if not delegate.nodes:
            return {node.column: only_backend for node in inside}
        events = _explain(delegate, names)
        if problem := _misfit(events):
            self.misfits.append(
                f"{self.program.source if self.program else method.name} is not the program that was run: "
                f"{problem}; shapes and sources of call {inside[0].call} are left out"
            )
            return {node.column: only_backend for node in inside}
        events_of = Counter(event.main.index for event in events if event.main and not event.what.preparation)
        return {
            node.column: self._graph_node(method.name, delegate.backend, event, events_of)
            for node, event in zip(inside, events, strict=True)
        }

    def _graph_node(self, method: str, backend: str, event: _Event, events: Counter[int]) -> OperatorSource:
        """`events` counts those of each node: what a node costs is the event's only where it is alone."""
        main, preparation = event.main, event.what.preparation
        if main is None:
            return OperatorSource(origin="backend" if preparation else "unknown", backend=backend)
        alone = events[main.index] == 1 and not preparation
        ref = self.etrecord.ref(method, main.debug_handle) if self.etrecord and not main.inserted else None
        return OperatorSource(
            origin="backend" if preparation else "lowering" if main.inserted else "model",
            backend=backend,
            node_index=main.index,
            node_kind=main.kind,
            fused=tuple(node.kind for node in event.nodes[1:]),
            debug_handle=main.debug_handle,
            input_shapes=tuple(tensor.shape for tensor in main.inputs if not tensor.constant),
            output_shape=main.outputs[0].shape if main.outputs else (),
            dtype=main.dtype,
            kernel_size=main.window.kernel if main.window else None,
            groups=main.window.groups if main.window else 0,
            flops=sum(node.flops for node in event.nodes) if alone else None,
            bytes_moved=main.bytes_moved if alone else None,
            place=ref or NOWHERE,
            described=event.what,
        )

    def _portable(self, method: Method, step: Instruction) -> OperatorSource:
        refs = self.etrecord.refs_of_instruction(method.name, step.instruction_id) if self.etrecord else ()
        return OperatorSource(
            origin="model" if refs else "unknown",
            operator=step.name,
            backend="portable",
            debug_handle=refs[0].debug_handle if refs else -1,
            input_shapes=tuple(tensor.shape for tensor in step.inputs if not tensor.constant),
            output_shape=step.outputs[0].shape if step.outputs else (),
            dtype=step.inputs[0].dtype if step.inputs else "",
            flops=step.flops,
            bytes_moved=step.bytes_moved,
            place=refs[0] if refs else NOWHERE,
        )


@dataclass(frozen=True, slots=True)
class _Event:
    """An event of a delegate call and the nodes it stands for, the main one (if any) first."""

    name: str
    what: OperatorClass
    main: GraphNode | None
    nodes: tuple[GraphNode, ...]


def _explain(delegate: Delegate, names: Sequence[str]) -> list[_Event]:
    """What the delegate says about the events of a call of it."""
    events = []
    for name, found in zip(names, delegate_named(delegate.backend).align(delegate.nodes, names), strict=True):
        nodes = tuple(delegate.nodes[index] for index in found)
        main = nodes[0] if nodes else None
        events.append(_Event(name, describe(name, delegate.backend, main), main, nodes))
    return events


def _misfit(events: Sequence[_Event]) -> str:
    """Why the graph cannot be what these events ran; empty when it can."""
    without = sum(event.main is None for event in events)
    if without > 0.2 * len(events):
        return f"{without} of {len(events)} operators fit no node"
    for event in events:
        if event.main and event.what.dtype not in ("", event.main.dtype):
            return f"{event.name} ran on {event.what.dtype}, its node is {event.main.dtype}"
    return ""


def _left_over(method: Method, group: RunGroup) -> int:
    """How many events fit no node and how many nodes no event, were these runs of `method`."""
    steps = {(step.chain_index, step.instruction_id): step for step in method.instructions}
    called: dict[tuple[int, int], list[str]] = {}
    for node in group.operators:
        if node.delegated:
            called.setdefault((node.chain_index, node.instruction_id), []).append(node.name)
    left = 0
    for place, names in called.items():
        step = steps.get(place)
        delegate = method.delegates[step.delegate] if step and step.delegate >= 0 else None
        if delegate is None or not delegate.nodes:
            continue
        events = _explain(delegate, names)
        left += sum(event.main is None for event in events) + (10 * len(names) if _misfit(events) else 0)
        left += len(delegate.nodes) - len({node.index for event in events for node in event.nodes})
    return left
