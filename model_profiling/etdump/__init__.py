"""ETDump bytes, and the boundaries beside them, to columns, with numpy only."""

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
