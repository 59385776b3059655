"""From an exported graph to a program for a backend, and an account of what the backend took."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model_profiling.errors import ExportError
from model_profiling.export.records import Undelegated

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
    delegated: int
    partitions: int
    undelegated: tuple[Undelegated, ...]
    written_inputs: int
    """Inputs the model writes into; the program returns them before its outputs."""


class _Refusals(logging.Handler):
    """Collects the partitioner's reasons, which it only ever writes to its debug log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        node, reason = getattr(record.msg, "node", None), getattr(record.msg, "reason", None)
        if node is not None and reason:
            self.reasons.setdefault(str(node), " ".join(str(reason).split()))


def lower(name: str, traced: ExportedProgram, backend: str) -> Lowered:
    """Lower to `backend`; the ETRecord ties the program's debug handles to the model's source."""
    from executorch.exir import to_edge_transform_and_lower

    partitioner = []
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        partitioner.append(XnnpackPartitioner())
    refusals = _Refusals()
    logger = logging.getLogger("executorch.backends.xnnpack")
    level, disabled = logger.level, logging.root.manager.disable
    logger.addHandler(refusals)
    logger.setLevel(logging.DEBUG)
    logging.disable(logging.NOTSET)
    try:
        edge = to_edge_transform_and_lower(traced, partitioner=partitioner, generate_etrecord=True)
        graph = edge.exported_program().graph_module
        inside = [_operators(part.original_module.graph_module) for part in _lowered_modules(graph)]
        # Before to_executorch(), which rewrites this graph's operators into their out= variants.
        outside = [(node.name, operator_name(node), module_path(node)) for node in _operators(graph)]
        written_inputs = len(edge.exported_program().graph_signature.user_inputs_to_mutate)
        program = edge.to_executorch(_with_initial_state(edge.exported_program()))
    except Exception as problem:
        said = next((line.strip() for line in str(problem).splitlines() if line.strip()), "")
        raise ExportError(
            f"ExecuTorch cannot lower '{name}' to {backend}: {type(problem).__name__}: {said}",
            "--debug shows where"
            + ("; --backend portable may still work" if backend != "portable" else ", replace what it names"),
        ) from problem
    finally:
        logger.removeHandler(refusals)
        logger.setLevel(level)
        logging.disable(disabled)
    default = _PORTABLE if backend == "portable" else _NO_RULE
    return Lowered(
        program=program,
        etrecord=program.get_etrecord(),
        delegated=sum(not is_rounding(node) for nodes in inside for node in nodes),
        partitions=len(inside),
        undelegated=tuple(
            Undelegated(operator, node, path, refusals.reasons.get(node, default))
            for node, operator, path in outside
        ),
        written_inputs=written_inputs,
    )


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


def is_rounding(node: torch.fx.Node) -> bool:
    """A quantize or dequantize step: inside a delegate it only marks the dtype and costs nothing."""
    return operator_name(node).startswith("quantized_decomposed.")


def module_path(node: torch.fx.Node) -> str:
    """Dotted path of the innermost module the node was traced in; empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L['self']").lstrip(".")


def _operators(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """What computes something: not a tuple access, and not the call of a delegate."""
    return [
        node
        for node in graph.graph.nodes
        if node.op == "call_function"
        and operator_name(node) not in ("getitem", "executorch_call_delegate", "alloc")
    ]


def _lowered_modules(graph: torch.fx.GraphModule) -> Iterator[torch.nn.Module]:
    for node in graph.graph.nodes:
        if node.op == "get_attr" and node.name.startswith("lowered_module_"):
            yield getattr(graph, node.target)
