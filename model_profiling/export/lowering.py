"""From an exported graph to a program for a backend, and an account of what the backend took."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_profiling.errors import ExportError
from model_profiling.export.records import Coverage, Undelegated
from model_profiling.models.blame import blaming
from model_profiling.program import read_program

if TYPE_CHECKING:
    import torch
    from executorch.devtools.etrecord import ETRecord
    from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager
    from torch.export import ExportedProgram

BACKENDS = ("xnnpack", "portable")
_NO_RULE = "the backend has no rule for this operator"
_PORTABLE = "the portable backend runs every operator itself"


@dataclass(frozen=True, slots=True)
class Lowered:
    """The program, its debug record, and which operators the backend took."""

    program: ExecutorchProgramManager
    etrecord: ETRecord
    coverage: Coverage
    written_inputs: int
    """Inputs the model writes into; the program returns them before its outputs."""


class _Refusals(logging.Handler):
    """Collects the partitioner's reasons by node, which it only ever writes to its debug log."""

    def __init__(self, default: str) -> None:
        super().__init__(logging.DEBUG)
        self.reasons = defaultdict[str, str](lambda: default)

    def emit(self, record: logging.LogRecord) -> None:
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", None)
        if node is not None and reason:
            self.reasons.setdefault(str(node), " ".join(str(reason).split()))


def lower(name: str, traced: ExportedProgram, backend: str) -> Lowered:
    """Lower to `backend`; the ETRecord ties the program's debug handles to the model's source."""
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_backend_modules

    partitioner = []
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioner.append(XnnpackPartitioner())
    portable = backend == "portable"
    refusals = _Refusals(_PORTABLE if portable else _NO_RULE)
    logger = logging.getLogger("executorch.backends.xnnpack")
    level, disabled = logger.level, logging.root.manager.disable
    logger.addHandler(refusals)
    logger.setLevel(logging.DEBUG)
    logging.disable(logging.NOTSET)
    fix = ", replace what it names" if portable else "; --backend portable may still work"
    try:
        with blaming(
            f"ExecuTorch cannot lower '{name}' to {backend}", f"--debug shows where{fix}", ExportError
        ):
            edge = to_edge_transform_and_lower(traced, partitioner=partitioner, generate_etrecord=True)
            lowered = edge.exported_program()
            parts = get_lowered_backend_modules(lowered.graph_module)
            inside = [node for part in parts for node in _operators(part.original_module.graph_module)]
            # Before to_executorch(), which rewrites this graph's operators into their out= variants.
            outside = tuple(
                Undelegated(operator_name(node), node.name, module_of(node)[0], refusals.reasons[node.name])
                for node in _operators(lowered.graph_module)
            )
            written_inputs = len(lowered.graph_signature.user_inputs_to_mutate)
            program = edge.to_executorch(_with_initial_state(lowered))
    finally:
        logger.removeHandler(refusals)
        logger.setLevel(level)
        logging.disable(disabled)
    coverage = Coverage(
        # Inside a delegate, a quantize or dequantize step only marks the dtype and costs nothing.
        delegated=sum(not operator_name(node).startswith("quantized_decomposed.") for node in inside),
        partitions=len(parts),
        undelegated=outside,
        inserted_transposes=sum(
            node.kind == "StaticTranspose" and node.inserted
            for method in read_program(program.buffer).methods
            for delegate in method.delegates
            for node in delegate.nodes
        ),
    )
    return Lowered(program, program.get_etrecord(), coverage, written_inputs)


def _with_initial_state(lowered: ExportedProgram) -> ExecutorchBackendConfig:
    """Buffers the model writes into keep the values they begin with; by default they begin as garbage."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    signature = lowered.graph_signature
    written = set(signature.buffers_to_mutate.values())
    names = [name for name, buffer in signature.inputs_to_buffers.items() if buffer in written]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)] if names else [])


def operator_name(node: torch.fx.Node) -> str:
    """`aten.convolution.default`, whichever dialect wraps it; a Python function goes by its own name."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def module_of(node: torch.fx.Node) -> tuple[str, str]:
    """Dotted path and class of the innermost module the node was traced in; empty for the model itself."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, cls = stack[-1] if stack else ("", "")
    path = str(path).removeprefix("L['self'].").removeprefix("L['self']").lstrip(".")
    return path, cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"


def _operators(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """What computes something: not a tuple access, and not the call of a delegate."""
    idle = ("getitem", "executorch_call_delegate", "alloc")
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [node for node in nodes if operator_name(node) not in idle]
