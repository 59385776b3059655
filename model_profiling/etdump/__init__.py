"""Reads ETDump files, and the operator boundaries beside them, into columns with numpy alone."""

from model_profiling.etdump.reader import TimeScale, read_etdump
from model_profiling.etdump.table import (
    AllocationTable,
    BlockTable,
    Boundaries,
    DebugTable,
    EventTable,
    boundaries_beside,
    read_boundaries,
)

__all__ = [
    "AllocationTable",
    "BlockTable",
    "Boundaries",
    "DebugTable",
    "EventTable",
    "TimeScale",
    "boundaries_beside",
    "read_boundaries",
    "read_etdump",
]
