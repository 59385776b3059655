"""ETDump bytes to a columnar event table, with numpy only."""

from model_profiling.etdump.reader import TimeScale, read_etdump
from model_profiling.etdump.table import AllocationTable, BlockTable, DebugTable, EventTable

__all__ = ["AllocationTable", "BlockTable", "DebugTable", "EventTable", "TimeScale", "read_etdump"]
