"""ETDump bytes to a columnar event table, with numpy only."""

from model_profiling.etdump.table import AllocationTable, BlockTable, DebugTable, EventTable

__all__ = ["AllocationTable", "BlockTable", "DebugTable", "EventTable"]
