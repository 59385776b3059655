"""Every operator of a program that multiplies matrices, from the program alone; and which of them reach SME2
kernels in a release of ExecuTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from model_profiling.core.records import read_record
from model_profiling.core.safe_read import is_there
from model_profiling.program.category import MATRIX, Category, operator_type
from model_profiling.program.delegates import delegate_named, describe
from model_profiling.program.delegates.protocol import counts_products
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


# What one-layer programs showed when emulated; `bench/sme2_probe.py` makes the record of a release.

PROBE = "python bench/sme2_probe.py"
"""In a clone of the kit."""
_FOLDER = Path(__file__).parent / "delegates" / "probed"


@dataclass(frozen=True, slots=True)
class ProbedLayer:
    """A program of one layer in one number format, run with SME2 on."""

    layer: str
    format: str
    path: str
    """What the backend sees of the layer, in the words of `Backend.path_of`."""
    types: tuple[str, ...]
    """Those of `GraphNode.types`."""
    event: str
    """The backend's name for the operator that ran."""
    kernels: tuple[str, ...]
    """The SME2 kernels that ran, without packing; empty if the layer does not reach SME2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    schema_version: Literal[1] = 1
    executorch: str
    layers: tuple[ProbedLayer, ...]

    def takes_sme(self, path: str, types: tuple[str, ...]) -> bool | None:
        """Whether an operator with these types runs on SME2 kernels; None if none like it was tried."""
        tried = {bool(each.kernels) for each in self.layers if (each.path, each.types) == (path, types)}
        return tried.pop() if len(tried) == 1 else None

    def tried(self, path: str) -> bool:
        return any(each.path == path for each in self.layers)

    def formats(self, path: str) -> tuple[str, ...]:
        """The number formats in which operators of this path run on SME2 kernels. Formats that leave them in
        the types of an earlier one are not repeated."""
        first: dict[tuple[str, ...], str] = {}
        for each in self.layers:
            if each.path == path:
                first.setdefault(each.types, each.format)
        return tuple(name for types, name in first.items() if self.takes_sme(path, types))


def probe_file(executorch: str) -> Path | None:
    """The record of a release such as `1.5.1+cpu`, whether it exists or not; None if it names no release."""
    release = re.match(r"\d{1,9}(?:\.\d{1,9}){1,3}(?=\+|$)", executorch)
    return _FOLDER / f"executorch-{release[0]}.json" if release else None


@cache
def reach_in(executorch: str) -> Reach | None:
    """What was tried with this ExecuTorch; None if nothing was."""
    path = probe_file(executorch)
    return read_record(Reach, path, f"make it again: {PROBE}") if path and is_there(path) else None
