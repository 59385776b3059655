"""Programs (.pte) and their records (.etrecord) to operators with shapes, cost and source, without torch."""

from model_profiling.program.align import align, is_packing
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.pte import read_program
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
    "align",
    "is_packing",
    "read_etrecord",
    "read_program",
]
