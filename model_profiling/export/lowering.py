"""Lowers an exported graph to a backend, and records which operators the backend took."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_profiling.core.errors import ExportError
from model_profiling.export.outside import Refusals, with_instructions
from model_profiling.export.records import Coverage
from model_profiling.export.tracing import operator_name, place_named_in
from model_profiling.models.options import blaming, passed_through
from model_profiling.program import read_program

if TYPE_CHECKING:
    import torch
    from executorch.devtools.etrecord import ETRecord
    from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager
    from torch.export import ExportedProgram

BACKENDS = ("xnnpack", "portable")


@dataclass(frozen=True, slots=True)
class Lowered:
    """The program, its debug record, and which operators the backend took."""

    program: ExecutorchProgramManager
    etrecord: ETRecord
    coverage: Coverage
    written_inputs: int
    """How many inputs the model writes into; the program returns them before its outputs."""


def lower(name: str, traced: ExportedProgram, backend: str) -> Lowered:
    """Lower to `backend`; the ETRecord links the program's debug handles to the model's source."""
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_backend_modules

    partitioner = None
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioner = XnnpackPartitioner()
    refusals = Refusals(partitioner)
    with (
        refusals.listening(),
        blaming(
            f"ExecuTorch cannot lower '{name}' to {backend}",
            _cure,
            ExportError,
            lambda problem: _place(problem, traced),
        ),
    ):
        chosen = [partitioner] if partitioner else []
        edge = to_edge_transform_and_lower(traced, partitioner=chosen, generate_etrecord=True)
        lowered = edge.exported_program()
        parts = get_lowered_backend_modules(lowered.graph_module)
        inside = [node for part in parts for node in _operators(part.original_module.graph_module)]
        # Before to_executorch(), which rewrites this graph's operators into their out= variants.
        left = [(node, refusals.account_of(node)) for node in _operators(lowered.graph_module)]
        written_inputs = len(lowered.graph_signature.user_inputs_to_mutate)
        program = edge.to_executorch(_with_initial_state(lowered))
    written = read_program(program.buffer)
    outside = with_instructions(left, program.debug_handle_map["forward"], written.methods[0])
    coverage = Coverage(
        # Inside a delegate, a quantize or dequantize step only marks the dtype and costs nothing.
        delegated=sum(not operator_name(node).startswith("quantized_decomposed.") for node in inside),
        partitions=len(parts),
        undelegated=tuple(map(refusals.with_replacement, outside)),
        inserted_transposes=sum(
            node.kind == "StaticTranspose" and node.inserted
            for method in written.methods
            for delegate in method.delegates
            for node in delegate.nodes
        ),
    )
    return Lowered(program, program.get_etrecord(), coverage, written_inputs)


def _place(problem: BaseException, traced: ExportedProgram) -> str:
    """The model's line with the operator that the error names, in the trace or in its decomposition."""
    if found := place_named_in(str(problem), traced):
        return found
    with contextlib.suppress(Exception):  # decomposing may be what failed
        return place_named_in(str(problem), traced.run_decompositions())
    return ""


def _cure(problem: BaseException) -> str:
    said = str(problem)
    if "complex" in said:
        return "compute with real and imaginary parts: ExecuTorch has no complex numbers"
    if "quantized_decomposed" in said:
        return "export fp16, or keep what that line computes from being quantized"
    if "Missing out variants" in said:
        return "register an out= variant of that operator with PyTorch, and its kernel with ExecuTorch"
    if "Core ATen" in said:
        return "replace that operator: ExecuTorch takes only those of Core ATen"
    if passed_through(problem, "/executorch/backends/"):
        return "--backend portable may still work; --debug shows where it stopped"
    return "--debug shows where it stopped"


def _with_initial_state(lowered: ExportedProgram) -> ExecutorchBackendConfig:
    """Keep the initial values of buffers the model writes into; by default they start as garbage."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    signature = lowered.graph_signature
    written = set(signature.buffers_to_mutate.values())
    names = [name for name, buffer in signature.inputs_to_buffers.items() if buffer in written]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)] if names else [])


def _operators(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The nodes that compute: neither tuple access nor the call of a delegate."""
    idle = ("getitem", "executorch_call_delegate", "alloc")
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [node for node in nodes if operator_name(node) not in idle]
