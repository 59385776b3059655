"""From traced methods to one ExecuTorch program: what the backend takes, and why the rest stays outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_profiling.core.errors import ExportError
from model_profiling.export import tracing
from model_profiling.export.outside import Refusals, listening, with_instructions
from model_profiling.export.records import DelegationCoverage
from model_profiling.export.tracing import operator_name, place_named_in
from model_profiling.models.options import blaming, passed_through
from model_profiling.program.graph_file import Undelegated
from model_profiling.program.pte import read_program

if TYPE_CHECKING:
    import torch
    from executorch.devtools.etrecord import ETRecord
    from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager
    from executorch.exir.backend.canonical_partitioners.config_partitioner import (
        ConfigerationBasedPartitioner,
    )
    from torch.export import ExportedProgram

    from model_profiling.models.base import Constants


@dataclass(frozen=True, slots=True)
class Lowered:
    """The program, its debug record, and which operators the backend took."""

    program: ExecutorchProgramManager
    etrecord: ETRecord
    coverage: DelegationCoverage
    by_method: Mapping[str, DelegationCoverage]
    written_inputs: Mapping[str, int]
    """By method: how many inputs the model writes into; the program returns them before its outputs."""


_MARKS = ("quantized_decomposed.", "torchao.")
"""Quantizing and dequantizing, as the two ways to quantize write them."""


def lower(
    name: str, traced: Mapping[str, ExportedProgram], backend: str, constants: Constants | None = None
) -> Lowered:
    """Lower the methods of a program to `backend`; the ETRecord links the program's debug handles to the
    model's source. The methods share weights, and the buffers that the model writes into."""
    from executorch.exir import to_edge_transform_and_lower

    refusals = {method: Refusals(_partitioner(backend)) for method in traced}
    chosen = {method: [found.partitioner] for method, found in refusals.items() if found.partitioner}
    with (
        listening(list(refusals.values())),
        blaming(
            f"ExecuTorch cannot lower '{name}' to {backend}",
            cure,
            ExportError,
            lambda problem: next(filter(None, (_place(problem, each) for each in traced.values())), ""),
        ),
    ):
        edge = to_edge_transform_and_lower(
            dict(traced),
            partitioner=chosen or None,
            constant_methods=dict(constants or {}) or None,
            generate_etrecord=True,
        )
        taken = {method: _taken(edge.exported_program(method), found) for method, found in refusals.items()}
        program = edge.to_executorch(_settings([edge.exported_program(method) for method in traced]))
    written = read_program(program.buffer)
    by_method = {}
    for method, found in refusals.items():
        (own,) = (each for each in written.methods if each.name == method)
        outside = with_instructions(taken[method].left, program.debug_handle_map[method], own)
        by_method[method] = DelegationCoverage(
            delegated=taken[method].delegated,
            partitions=taken[method].partitions,
            undelegated=tuple(map(found.with_replacement, outside)),
            inserted_transposes=sum(
                node.kind == "StaticTranspose" and node.inserted
                for delegate in own.delegates
                for node in delegate.nodes
            ),
        )
    return Lowered(
        program,
        program.get_etrecord(),
        _total(by_method.values()),
        by_method,
        {method: found.written_inputs for method, found in taken.items()},
    )


def _partitioner(backend: str) -> ConfigerationBasedPartitioner | None:
    if backend != "xnnpack":
        return None
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner()


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the backend took of one method, and the nodes it left."""

    delegated: int
    partitions: int
    left: Sequence[tuple[torch.fx.Node, Undelegated]]
    written_inputs: int


def _taken(lowered: ExportedProgram, refusals: Refusals) -> _Taken:
    """To be called before to_executorch(), which rewrites this graph's operators into their out= variants."""
    from executorch.exir.lowered_backend_module import get_lowered_backend_modules

    parts = get_lowered_backend_modules(lowered.graph_module)
    inside = [node for part in parts for node in _operators(part.original_module.graph_module)]
    return _Taken(
        # Inside a delegate, a quantize or dequantize step only marks the dtype and costs nothing.
        delegated=sum(not operator_name(node).startswith(_MARKS) for node in inside),
        partitions=len(parts),
        left=[(node, refusals.account_of(node)) for node in _operators(lowered.graph_module)],
        written_inputs=len(lowered.graph_signature.user_inputs_to_mutate),
    )


def _total(parts: Iterable[DelegationCoverage]) -> DelegationCoverage:
    found = list(parts)
    return DelegationCoverage(
        delegated=sum(each.delegated for each in found),
        partitions=sum(each.partitions for each in found),
        undelegated=tuple(operator for each in found for operator in each.undelegated),
        inserted_transposes=sum(each.inserted_transposes for each in found),
    )


def _place(problem: BaseException, traced: ExportedProgram) -> str:
    """The model's line with the operator that the error names, in the trace or in its decomposition."""
    if found := place_named_in(str(problem), traced):
        return found
    with contextlib.suppress(Exception):  # decomposing may be what failed
        return place_named_in(str(problem), traced.run_decompositions())
    return ""


_IN_BUFFERS = f"keep what one call leaves for the next in buffers (register_buffer); {tracing.STATIC_CACHE}"
_CURES = {
    "complex": "compute with real and imaginary parts separately: ExecuTorch has no complex numbers",
    "quantized_decomposed": "export fp16, or exclude that line from quantization",
    "Missing out variants": (
        "register an out= variant of that operator with PyTorch, and its kernel with ExecuTorch"
    ),
    "is mutated in the forward method": _IN_BUFFERS,
    "expected compiled_fn to be GraphModule": _IN_BUFFERS,
    "tensor to use channels_last format": tracing.CONVOLUTIONS_IN_FP32,
    "Core ATen": "replace that operator: ExecuTorch takes only operators of Core ATen",
}
"""What to do, by a part of what ExecuTorch says."""


def cure(problem: BaseException) -> str:
    said = str(problem)
    for part, known in _CURES.items():
        if part in said:
            return known
    if passed_through(problem, "/executorch/backends/"):
        return "--backend portable may still work; --debug shows where it stopped"
    return "--debug shows where it stopped"


def _settings(lowered: Sequence[ExportedProgram]) -> ExecutorchBackendConfig:
    """Keep the initial values of buffers the model writes into, which by default start as garbage; methods
    share them, and write a part of one in place, not in a copy."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    names = []
    for signature in (each.graph_signature for each in lowered):
        written = set(signature.buffers_to_mutate.values())
        names += [name for name, buffer in signature.inputs_to_buffers.items() if buffer in written]
    return ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(names)] if names else [],
        run_reinplace_pass=bool(names),
        memory_planning_pass=MemoryPlanningPass(share_mutable_buffers=bool(names) and len(lowered) > 1),
    )


def _operators(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that compute tensors: neither tuple access, nor the call of a delegate, nor sums and checks
    of varying sizes."""
    idle = ("getitem", "executorch_call_delegate", "alloc")
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [node for node in nodes if operator_name(node) not in idle and tracing.made_tensors(node)]
