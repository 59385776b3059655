"""What a program and its record say about the operators of a dump: shapes, cost, place in the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model_profiling.analysis.attribution import Node, RunGroup
from model_profiling.analysis.categories import Category, classify
from model_profiling.program import (
    EtRecord,
    Instruction,
    Method,
    Program,
    SourceRef,
    Tensor,
    XnnNode,
    align,
    is_packing,
)

Origin = Literal["model", "lowering", "backend", "unknown"]
"""Written in the model, inserted by lowering, added by the backend at run time (packing), or not known."""


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where in the model an operator was written; empty fields are unknown."""

    node: str = ""
    """Name of the node in the exported graph."""
    module_path: str = ""
    module_class: str = ""
    file: str = ""
    line: int = 0
    code: str = ""


NOWHERE = ModelPlace()


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
    converts: str = ""
    """quantize or dequantize, for a conversion whose two types are known."""
    kernel_size: tuple[int, int] | None = None
    groups: int = 0
    flops: int | None = None
    bytes_moved: int | None = None
    place: ModelPlace = NOWHERE
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
        self.warnings: list[str] = []
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
        steps = (
            {(step.chain_index, step.instruction_id): step for step in method.instructions} if method else {}
        )
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
                calls & {(one.chain_index, one.instruction_id, one.kind) for one in method.instructions}
            )
            for method in self.program.methods
        }
        best = max(fitting.values())
        if best < len(calls):
            self.warnings.append(
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
            backend = _backend_by_names(names)
            return {node.column: OperatorSource(backend=backend) for node in inside}
        delegate = method.delegates[step.delegate]
        if not delegate.nodes:
            return {node.column: OperatorSource(backend=delegate.backend) for node in inside}
        matches = align(delegate.nodes, names)
        if problem := _misfit(delegate.nodes, names, matches):
            self.warnings.append(
                f"{self.program.source if self.program else method.name} is not the program that was run: "
                f"{problem}; shapes and sources of call {inside[0].call} are left out"
            )
            return {node.column: OperatorSource(backend=delegate.backend) for node in inside}
        events_of = Counter(
            found[0] for found, name in zip(matches, names, strict=True) if found and not is_packing(name)
        )
        sources = {}
        for node, found in zip(inside, matches, strict=True):
            alone = bool(found) and events_of[found[0]] == 1 and not is_packing(node.name)
            nodes = [delegate.nodes[index] for index in found]
            source = self._graph_node(method.name, delegate.backend, nodes, alone=alone)
            sources[node.column] = replace(source, origin="backend") if is_packing(node.name) else source
        return sources

    def _graph_node(
        self, method: str, backend: str, nodes: Sequence[XnnNode], *, alone: bool
    ) -> OperatorSource:
        """`alone` says that one event stands for all of the node's work, so that its cost is the event's."""
        if not nodes:
            return OperatorSource(backend=backend)
        main = nodes[0]
        ref = self.etrecord.ref(method, main.debug_handle) if self.etrecord and not main.inserted else None
        return OperatorSource(
            origin="lowering" if main.inserted else "model",
            backend=backend,
            node_index=main.index,
            node_kind=main.kind,
            fused=tuple(node.kind for node in nodes[1:]),
            debug_handle=main.debug_handle,
            input_shapes=tuple(tensor.shape for tensor in main.inputs if not tensor.constant),
            output_shape=main.outputs[0].shape if main.outputs else (),
            dtype=main.dtype,
            converts=_conversion(main.inputs, main.outputs) if main.kind == "Convert" else "",
            kernel_size=main.window.kernel if main.window else None,
            groups=main.window.groups if main.window else 0,
            flops=sum(node.flops for node in nodes) if alone else None,
            bytes_moved=main.bytes_moved if alone else None,
            place=_place(ref),
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
            place=_place(refs[0] if refs else None),
        )


# What a kernel family says about the data it works on, where that leaves no doubt.
_FAMILY_DTYPES = {
    "F16": "fp16",
    "PF16": "fp16",
    "F32": "fp32",
    "PF32": "fp32",
    "QS8": "qint8",
    "QC8": "qint8",
}


def _misfit(nodes: Sequence[XnnNode], names: Sequence[str], matches: Sequence[tuple[int, ...]]) -> str:
    """Why this graph cannot be what these events ran; empty when it can."""
    without = sum(not found for found in matches)
    if without > 0.2 * len(names):
        return f"{without} of {len(names)} operators fit no node"
    for name, found in zip(names, matches, strict=True):
        wanted = _FAMILY_DTYPES.get(classify(name).family.partition(", ")[0])
        if found and wanted and _computes(nodes[found[0]]) and nodes[found[0]].dtype != wanted:
            return f"{name} ran on {wanted}, its node is {nodes[found[0]].dtype}"
    return ""


def _left_over(method: Method, group: RunGroup) -> int:
    """How many events fit no node and how many instructions were not called, were these runs of `method`."""
    steps = {(step.chain_index, step.instruction_id): step for step in method.instructions}
    called: dict[tuple[int, int], list[str]] = {}
    for node in group.operators:
        if node.delegated:
            called.setdefault((node.chain_index, node.instruction_id), []).append(node.name)
    left = 0
    for place, names in called.items():
        step = steps.get(place)
        nodes = method.delegates[step.delegate].nodes if step and step.delegate >= 0 else ()
        matches = align(nodes, names) if nodes else ()
        left += sum(not found for found in matches) + (
            10 * len(names) if _misfit(nodes, names, matches) else 0
        )
        left += len(nodes) - len({index for found in matches for index in found})
    return left


def _computes(node: XnnNode) -> bool:
    return node.kind in ("Conv2d", "DepthwiseConv2d", "FullyConnected")


def _place(ref: SourceRef | None) -> ModelPlace:
    if ref is None:
        return NOWHERE
    return ModelPlace(ref.node, ref.module_path, ref.module_class, ref.file, ref.line, ref.code)


def _conversion(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> str:
    if not inputs or not outputs:
        return ""
    before, after = inputs[0].dtype.startswith("q"), outputs[0].dtype.startswith("q")
    if before == after:
        return ""
    return "quantize" if after else "dequantize"


def _backend_by_names(names: list[str]) -> str:
    """XNNPACK names its operators in a way no other delegate does."""
    return "XnnpackBackend" if any(classify(name).family for name in names) else ""
