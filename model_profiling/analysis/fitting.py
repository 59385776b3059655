"""How the runs of a dump fit a method of a program: the node of each operator, and whether the method can be
what was run at all.

An operator that fits nothing is left without a node and takes nothing from the others. That another program
was run is said on proof alone: calls that the program does not have, or matrix operators (which a backend
neither drops, nor splits, nor invents) that are not those of the program, or of another number format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from model_profiling.analysis.attribution import Node, RunGroup
from model_profiling.program import Delegate, GraphNode, Instruction, Method
from model_profiling.program.category import MATRIX, OperatorClass
from model_profiling.program.delegates import delegate_named, describe
from model_profiling.wording import plural

_MOST = 0.5
MATRIX_APART = 0.1
"""Of matrix nodes and operators: how many may have no counterpart in the program that was run."""
_KERNEL = "native_call_"
_Place = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Explained:
    """An operator of a delegate call and the nodes it stands for, the main one (if any) first."""

    node: Node
    what: OperatorClass
    nodes: tuple[GraphNode, ...]
    ran_in: str = ""
    """The type it computed in, as far as that is known."""
    contradicts: str = ""
    """Why the node it would come from is not its own."""

    @property
    def main(self) -> GraphNode | None:
        return self.nodes[0] if self.nodes else None

    @property
    def multiplies(self) -> bool:
        return self.what.category in MATRIX and not self.what.preparation


@dataclass(frozen=True, slots=True)
class CallFit:
    """The operators of one call, and what the method says about it."""

    operators: tuple[Node, ...]
    step: Instruction | None
    """None where the method has no such call."""
    delegate: Delegate | None
    """The delegate it calls; None for anything else."""
    explained: tuple[Explained, ...]
    """Those of a delegate whose graph is known."""


@dataclass(frozen=True)
class MethodFit:
    """A method and the runs that may be its own."""

    method: Method
    calls: tuple[CallFit, ...]
    absent: int
    """Calls that the method does not have."""
    call_count: int

    @cached_property
    def contradiction(self) -> str:
        """What proves that the method was not run; empty where nothing does."""
        if self.absent > _MOST * self.call_count:
            return f"it does not have {self.absent} of the {self.call_count} calls"
        graphs = [call for call in self.calls if call.explained]
        operators = [one for call in graphs for one in call.explained if not one.what.preparation]
        strange = [one for one in operators if not one.nodes]
        other_type = [one.contradicts for one in strange if one.contradicts]
        if other_type and len(other_type) > _MOST * sum(one.multiplies for one in operators):
            return f"{other_type[0]}, and so with {len(other_type)} operators"
        if len(strange) > _MOST * len(operators):
            return f"{len(strange)} of {plural(len(operators), 'operator')} fit none of its nodes"
        ran = sum(one.multiplies for one in operators)
        has = sum(len(_undivided(call)) for call in graphs)
        if sum(map(_apart, graphs)) > max(1.0, MATRIX_APART * (ran + has)):
            return f"{plural(ran, 'matrix operator')} ran, it has {has}"
        return ""

    @property
    def left_over(self) -> int:
        """How many operators fit no node and how many nodes no operator."""
        left = 0
        for call in self.calls:
            if call.delegate is not None and call.explained:
                left += sum(not one.nodes for one in call.explained)
                left += len(call.delegate.nodes) - len(_reached(call))
        return left


def best_fit(methods: Sequence[Method], group: RunGroup) -> MethodFit:
    """The method that has most of the calls of these runs and, of several, that which leaves least over."""
    calls = {_place(node) for node in group.nodes if node.level == "call"}
    absent = [len(calls - _steps(method).keys()) for method in methods]
    chosen = [method for method, without in zip(methods, absent, strict=True) if without == min(absent)]
    fits = [_fit(method, group, min(absent), len(calls)) for method in chosen]
    return min(fits, key=lambda found: (found.left_over, len(found.method.instructions)))


def _fit(method: Method, group: RunGroup, absent: int, call_count: int) -> MethodFit:
    """Lay the calls of these runs along the method's instructions."""
    steps = _steps(method)
    inside: dict[int, list[Node]] = {}
    for node in group.operators:
        inside.setdefault(node.call, []).append(node)
    calls = (_fit_call(method, steps.get(_place(found[0])), found) for found in inside.values())
    return MethodFit(method, tuple(calls), absent, call_count)


def _steps(method: Method) -> dict[_Place, Instruction]:
    return {(step.chain_index, step.instruction_id, step.kind): step for step in method.instructions}


def _place(node: Node) -> _Place:
    return node.chain_index, node.instruction_id, node.call_kind


def _fit_call(method: Method, step: Instruction | None, inside: Sequence[Node]) -> CallFit:
    kernel = inside[-1].name
    if step is not None and step.kind == "operator" and kernel.startswith(_KERNEL):
        # A kernel says which operator it is of: another one is none of this program's.
        same = kernel.removeprefix(_KERNEL) == step.name.partition("::")[2]
        return CallFit(tuple(inside), step if same else None, None, ())
    if step is None or not 0 <= step.delegate < len(method.delegates):
        return CallFit(tuple(inside), step, None, ())
    delegate = method.delegates[step.delegate]
    return CallFit(tuple(inside), step, delegate, tuple(_explain(delegate, inside)))


def _explain(delegate: Delegate, inside: Sequence[Node]) -> Iterator[Explained]:
    """What the delegate says about the operators of a call of it."""
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
    """Nodes that run as one operator each, in any case."""
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
