"""Lowered programs (.pte) and their records (.etrecord) to operators with shapes, cost and source, without torch."""

from model_profiling.program.records import (
    INSERTED_HANDLE,
    Delegate,
    EtRecord,
    Instruction,
    Method,
    Program,
    SourceRef,
    Tensor,
    Window,
    XnnNode,
)

__all__ = [
    "INSERTED_HANDLE",
    "Delegate",
    "EtRecord",
    "Instruction",
    "Method",
    "Program",
    "SourceRef",
    "Tensor",
    "Window",
    "XnnNode",
]
