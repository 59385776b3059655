"""Maps the operators of a dump to a program and its record: shapes, cost, place in the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from model_profiling.analysis.attribution import Node, RunGroup
from model_profiling.core.formatting import listing, plural
from model_profiling.program.category import MATRIX, Category, OperatorClass
from model_profiling.program.delegates import delegate_named, delegate_of_events, describe
from model_profiling.program.records import (
    Delegate,
    EtRecord,
    GraphNode,
    Instruction,
    Method,
    Program,
    SourceRef,
    Tensor,
)

# Fits the runs of a dump to a method of a program. An operator that fits nothing gets no node and takes none
# from others. Only proof shows another program: calls it does not have, or matrix operators (which a backend
# neither drops, splits nor invents) that are not the program's or have another number format.

_MOST = 0.5
MATRIX_APART = 0.1
"""Share of matrix nodes and operators that may lack a counterpart in the program that was run."""
_KERNEL = "native_call_"


@dataclass(frozen=True, slots=True)
class Explained:
    """An operator of a delegate call and the nodes it stands for, the main one (if any) first."""

    node: Node
    what: OperatorClass
    nodes: tuple[GraphNode, ...]
    ran_in: str = ""
    """The type it computed in, if known."""
    contradicts: str = ""
    """Why the node it was aligned with is not its own."""

    @property
    def main(self) -> GraphNode | None:
        return self.nodes[0] if self.nodes else None

    @property
    def multiplies(self) -> bool:
        return self.what.category in MATRIX and not self.what.preparation


@dataclass(frozen=True, slots=True)
class CallFit:
    operators: tuple[Node, ...]
    step: Instruction | None
    """None if the method has no such call."""
    delegate: Delegate | None
    explained: tuple[Explained, ...]
    """The operators of a delegate with a known graph."""


@dataclass(frozen=True)
class MethodFit:
    method: Method
    calls: tuple[CallFit, ...]
    absent: int
    call_count: int
    rivals: tuple[str, ...] = ()
    """Other methods that fit as well and have other shapes."""

    @cached_property
    def contradiction(self) -> str:
        """Proof that the method was not run; empty if there is none."""
        if self.absent > _MOST * self.call_count:
            return f"{self.absent} of the {self.call_count} calls are not in it"
        graphs = [call for call in self.calls if call.explained]
        operators = [one for call in graphs for one in call.explained if not one.what.preparation]
        strange = [one for one in operators if not one.nodes]
        other_type = [one.contradicts for one in strange if one.contradicts]
        if other_type and len(other_type) > _MOST * sum(one.multiplies for one in operators):
            return f"{other_type[0]}, and {len(other_type)} operators differ in this way"
        if len(strange) > _MOST * len(operators):
            return f"{len(strange)} of {plural(len(operators), 'operator')} match none of its nodes"
        ran = sum(one.multiplies for one in operators)
        has = sum(len(_undivided(call)) for call in graphs)
        if sum(map(_apart, graphs)) > max(1.0, MATRIX_APART * (ran + has)):
            return f"{plural(ran, 'matrix operator')} ran, but it has {has}"
        return ""

    @property
    def left_over(self) -> int:
        """Number of operators without a node plus nodes without an operator."""
        left = 0
        for call in self.calls:
            if call.delegate is not None and call.explained:
                left += sum(not one.nodes for one in call.explained)
                left += len(call.delegate.nodes) - len(_reached(call))
        return left


def best_fit(methods: Sequence[Method], group: RunGroup) -> MethodFit:
    """The method with most of these runs' calls; if several, the one with the fewest leftovers."""
    calls = {_place(node) for node in group.nodes if node.level == "call"}
    steps: list[dict[tuple[int, int, str], Instruction]] = [
        {(step.chain_index, step.instruction_id, step.kind): step for step in method.instructions}
        for method in methods
    ]
    absent = [len(calls - known.keys()) for known in steps]
    inside = _by_call(group.operators)
    fits = [
        MethodFit(
            method,
            tuple(_fit_call(method, known.get(_place(found[0])), found) for found in inside),
            without,
            len(calls),
        )
        for method, known, without in zip(methods, steps, absent, strict=True)
        if without == min(absent)
    ]

    def distance(found: MethodFit) -> tuple[int, int]:
        return found.left_over, len(found.method.instructions)

    best = min(fits, key=distance)
    as_well = (found.method for found in fits if distance(found) == distance(best))
    rivals = (method for method in as_well if method.instructions != best.method.instructions)
    return replace(best, rivals=tuple(method.name for method in rivals))


def _by_call(operators: Iterable[Node]) -> list[list[Node]]:
    calls: dict[int, list[Node]] = {}
    for node in operators:
        calls.setdefault(node.call, []).append(node)
    return list(calls.values())


def _place(node: Node) -> tuple[int, int, str]:
    return node.chain_index, node.instruction_id, node.call_kind


def _fit_call(method: Method, step: Instruction | None, inside: Sequence[Node]) -> CallFit:
    kernel = inside[-1].name
    if step is not None and step.kind == "operator" and kernel.startswith(_KERNEL):
        # A kernel names its operator: a different one is not from this program.
        same = kernel.removeprefix(_KERNEL) == step.name.partition("::")[2]
        return CallFit(tuple(inside), step if same else None, None, ())
    if step is None or not 0 <= step.delegate < len(method.delegates):
        return CallFit(tuple(inside), step, None, ())
    delegate = method.delegates[step.delegate]
    return CallFit(tuple(inside), step, delegate, tuple(_explain(delegate, inside)))


def _explain(delegate: Delegate, inside: Sequence[Node]) -> Iterator[Explained]:
    if not delegate.nodes:
        return
    backend, names = delegate_named(delegate.backend), [node.name for node in inside]
    members = [
        tuple(delegate.nodes[index] for index in found) for found in backend.align(delegate.nodes, names)
    ]
    types = backend.ran_in(names, [nodes[0] if nodes else None for nodes in members])
    for node, nodes, ran_in in zip(inside, members, types, strict=True):
        what = describe(node.name, delegate.backend, nodes[0] if nodes else None)
        if nodes and what.dtype not in ("", ran_in):
            problem = f"{node.name} ran on {what.dtype}, its node is {nodes[0].dtype}"
            yield Explained(node, describe(node.name, delegate.backend), (), contradicts=problem)
        else:
            yield Explained(node, what, nodes, ran_in)


def _undivided(call: CallFit) -> list[GraphNode]:
    """Nodes that always run as exactly one operator each."""
    if call.delegate is None:
        return []
    kinds = delegate_named(call.delegate.backend).undivided
    return [node for node in call.delegate.nodes if node.kind in kinds]


def _reached(call: CallFit) -> set[int]:
    return {node.index for one in call.explained for node in one.nodes}


def _apart(call: CallFit) -> int:
    """Matrix operators without a node, and matrix nodes that no operator can stand for."""
    strange = [one for one in call.explained if not one.nodes]
    alone = sum(one.multiplies and not one.contradicts for one in strange)
    reached = _reached(call)
    missing = sum(node.index not in reached for node in _undivided(call))
    return alone + max(0, missing - (len(strange) - alone))


Origin = Literal["model", "lowering", "backend", "unknown"]
"""Written in the model, inserted by lowering, added by the backend at run time (packing), or unknown."""


NOWHERE = SourceRef()


@dataclass(frozen=True, slots=True)
class OperatorSource:
    """One operator's place in the program and the model; empty fields are unknown."""

    origin: Origin = "unknown"
    operator: str = ""
    """The program's name for an operator outside delegates: `aten::add.out`."""
    backend: str = ""
    node_index: int = -1
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
    ran_in: str = ""
    """The type it ran in, if not `dtype`."""
    unplaced: bool = False
    """Its delegate's graph is known, but none of its nodes fits."""
    described: OperatorClass | None = None
    """The class its graph node gives; None where only its name can tell."""
    stated: tuple[Category, str] | None = None
    """Category and kind from a file that was written when the program was available."""

    @property
    def module_path(self) -> str:
        return self.place.module_path


UNKNOWN_SOURCE = OperatorSource()


class ProgramView:
    """Explains the runs of a dump by a program and its record; either may be missing."""

    def __init__(
        self,
        program: Program | None = None,
        etrecord: EtRecord | None = None,
        *,
        proven: bool = False,
        method: str = "",
    ) -> None:
        """`proven`: the program is known to be the one that was run, whatever fits. `method` is the one that
        ran, if known."""
        self.program = program
        self.etrecord = etrecord
        self.proven = proven
        ran = program.method(method) if program else None
        self._methods = (ran,) if ran else program.methods if program else ()
        self.misfits: list[str] = []
        """Proof that `program` did not make this dump; it is then not used."""
        self.doubts: list[str] = []
        """Why `program` is not used although it may have made this dump."""
        self._fits: dict[int, MethodFit | None] = {}

    def method_of(self, group: RunGroup) -> str:
        """Name of the method these runs executed; empty without a program."""
        fit = self._fit(group)
        return fit.method.name if fit else ""

    def sources(self, group: RunGroup) -> Mapping[int, OperatorSource]:
        """What is known about each operator, by its column in `group`."""
        fit = self._fit(group)
        known: dict[int, OperatorSource] = {}
        if fit is None:
            # Operator names alone tell which backend they belong to.
            for inside in _by_call(node for node in group.operators if node.call_kind == "delegate"):
                known.update(_of_backend(inside))
            return known
        for call in fit.calls:
            if call.operators[0].call_kind == "delegate":
                known.update(self._delegated(fit.method.name, call))
            elif call.step is not None:
                known[call.operators[-1].column] = self._portable(fit.method, call.step)
        return known

    def _fit(self, group: RunGroup) -> MethodFit | None:
        if self.program is None or not self._methods:
            return None
        first = int(group.runs[0])  # a run has one structure, so it names its group
        if first not in self._fits:
            best = best_fit(self._methods, group)
            self._fits[first] = None if best.contradiction or best.rivals else best
            if best.rivals and not best.contradiction:
                fitting = listing((best.method.name, *best.rivals))
                doubt = f"{self.program.source} has several methods that fit this dump ({fitting})"
                self.doubts.append(f"{doubt}; shapes and sources are left out")
            elif best.contradiction:
                source = self.program.source
                found = f"{source} is not the program that was run"
                if self.proven:
                    found = f"this dump was not made by {source}, the program of its run"
                self.misfits.append(f"{found}: {best.contradiction}; shapes and sources are left out")
        return self._fits[first]

    def _delegated(self, method: str, call: CallFit) -> dict[int, OperatorSource]:
        if call.delegate is None:
            return _of_backend(call.operators)
        if not call.explained:
            return {node.column: OperatorSource(backend=call.delegate.backend) for node in call.operators}
        own = (one.main for one in call.explained if not one.what.preparation and not one.what.ends_node)
        events_of = Counter(main.index for main in own if main)
        return {
            one.node.column: self._graph_node(method, call.delegate.backend, one, events_of)
            for one in call.explained
        }

    def _graph_node(self, method: str, backend: str, one: Explained, events: Counter[int]) -> OperatorSource:
        """`events` counts each node's events: a node's cost belongs to an event only if it is alone."""
        main, what = one.main, one.what
        if main is None:
            origin: Origin = "backend" if what.preparation else "unknown"
            return OperatorSource(origin=origin, backend=backend, unplaced=not what.preparation)
        ref = self.etrecord.ref(method, main.debug_handle) if self.etrecord and not main.inserted else None
        flops, moved = _cost(one, alone=events[main.index] == 1)
        made = main.outputs[0].shape if main.outputs else ()
        return OperatorSource(
            origin="backend" if what.preparation else "lowering" if main.inserted else "model",
            backend=backend,
            node_index=main.index,
            node_kind=main.kind,
            fused=tuple(node.kind for node in one.nodes[1:]),
            debug_handle=main.debug_handle,
            input_shapes=(made,)
            if what.ends_node
            else tuple(tensor.shape for tensor in main.inputs if not tensor.constant),
            output_shape=made,
            dtype=main.dtype,
            ran_in=one.ran_in if one.ran_in != main.dtype else "",
            kernel_size=main.window.kernel if main.window and not what.ends_node else None,
            groups=main.window.groups if main.window and not what.ends_node else 0,
            flops=flops,
            bytes_moved=moved,
            place=ref or NOWHERE,
            described=what,
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
            dtype=next((tensor.dtype for tensor in (*step.inputs, *step.outputs)), ""),
            flops=step.flops,
            bytes_moved=step.bytes_moved,
            place=refs[0] if refs else NOWHERE,
        )


def _of_backend(inside: Sequence[Node]) -> dict[int, OperatorSource]:
    backend = delegate_of_events([node.name for node in inside]).name
    return {node.column: OperatorSource(backend=backend) for node in inside}


def _cost(one: Explained, *, alone: bool) -> tuple[int | None, int | None]:
    """Operations and bytes of an operator; None if it shares its node with others."""
    main = one.main
    if main is None or one.what.preparation:
        return None, None
    if one.what.ends_node:
        made = _as_run(main, one.ran_in, main.outputs)
        return sum(tensor.elements for tensor in made), 2 * sum(tensor.nbytes for tensor in made)
    if not alone:
        return None, None
    moved = main.bytes_moved
    if one.ran_in not in ("", main.dtype):
        moved = sum(tensor.nbytes for tensor in _as_run(main, one.ran_in, (*main.inputs, *main.outputs)))
    return sum(node.flops for node in one.nodes), moved


def _as_run(node: GraphNode, ran_in: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    return [
        replace(tensor, dtype=ran_in) if ran_in and tensor.dtype == node.dtype else tensor
        for tensor in tensors
    ]
