"""Every operator of a program that multiplies matrices, from the program alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from model_profiling.program.category import MATRIX, Category, operator_type
from model_profiling.program.delegates import delegate_named, describe
from model_profiling.program.delegates.portable import counts_products
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.records import GraphNode, Instruction, Method, OperatorKey, SourceRef


@dataclass(frozen=True, slots=True)
class MatrixWork:
    method: str
    step: Instruction
    """The operator itself, or the call of the delegate that contains it."""
    node: GraphNode | None
    category: Category
    kind: str
    backend: str
    flops: int | None
    rows: int | None
    """Rows of the result as one matrix (the M of a GEMM); None if its layout is not known."""
    place: SourceRef
    path: str = ""
    """The kind as fine as the backend's choice of a kernel; empty if unknown."""

    @property
    def name(self) -> str:
        return self.node.kind if self.node else self.step.name

    @property
    def node_index(self) -> int:
        return self.node.index if self.node else -1

    @property
    def key(self) -> OperatorKey:
        return OperatorKey(self.method, self.step.chain_index, self.step.instruction_id, 0, self.node_index)


def matrix_work(graph: ProgramGraph, method: Method) -> Iterator[MatrixWork]:
    for step in method.instructions:
        if step.kind == "operator":
            yield from _outside(graph, method, step)
        elif step.kind == "delegate" and 0 <= step.delegate < len(method.delegates):
            yield from _inside(graph, method, step)


def unseen_delegates(method: Method) -> tuple[str, ...]:
    """The delegate's name for each call whose payload is not understood."""
    steps = (step for step in method.instructions if step.kind == "delegate")
    return tuple(step.name for step in steps if not method.delegates[step.delegate].nodes)


def rows_of_result(kind: str, shape: tuple[int, ...]) -> int | None:
    """Rows of a result as one matrix: positions of an image (channels last), or rows of one product."""
    if not shape:
        return None
    if kind == "matmul":
        return shape[-2] if len(shape) > 1 else 1
    return math.prod(shape[:-1])


def _outside(graph: ProgramGraph, method: Method, step: Instruction) -> Iterator[MatrixWork]:
    what = describe(operator_type(step.name), "portable")
    if what.category not in MATRIX:
        return
    refs = graph.record.refs_of_instruction(method.name, step.instruction_id) if graph.record else ()
    yield MatrixWork(
        method=method.name,
        step=step,
        node=None,
        category=what.category,
        kind=what.kind,
        backend="portable",
        flops=step.flops if counts_products(step.name) else None,
        rows=None,
        place=refs[0] if refs else SourceRef(),
    )


def _inside(graph: ProgramGraph, method: Method, step: Instruction) -> Iterator[MatrixWork]:
    delegate = method.delegates[step.delegate]
    backend = delegate_named(delegate.backend)
    for node in delegate.nodes:
        if (known := backend.multiplies(node)) is None:
            continue
        category, kind = known
        ref = graph.record.ref(method.name, node.debug_handle) if graph.record and not node.inserted else None
        yield MatrixWork(
            method=method.name,
            step=step,
            node=node,
            category=category,
            kind=kind,
            backend=delegate.backend,
            flops=node.flops,
            rows=rows_of_result(kind, node.outputs[0].shape if node.outputs else ()),
            place=ref or SourceRef(),
            path=backend.path_of(node),
        )
