"""Reads ETDump files, and the operator boundaries beside them, into columns with numpy alone."""

from model_profiling.etdump.reader import read_etdump
from model_profiling.etdump.table import (
    BlockTable,
    Boundaries,
    EventTable,
    boundaries_beside,
    read_boundaries,
)

__all__ = [
    "BlockTable",
    "Boundaries",
    "EventTable",
    "boundaries_beside",
    "read_boundaries",
    "read_etdump",
]
