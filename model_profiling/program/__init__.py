"""Reads programs (.pte) and records (.etrecord): operators with shapes, cost and source, without torch."""

from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.pte import read_program
from model_profiling.program.records import (
    INSERTED_HANDLE,
    Delegate,
    EtRecord,
    GraphNode,
    Instruction,
    Method,
    Program,
    SourceRef,
    Tensor,
    Window,
)

__all__ = [
    "INSERTED_HANDLE",
    "Delegate",
    "EtRecord",
    "GraphNode",
    "Instruction",
    "Method",
    "Program",
    "SourceRef",
    "Tensor",
    "Window",
    "read_etrecord",
    "read_program",
]
