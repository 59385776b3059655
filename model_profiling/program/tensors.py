"""Tensor records from flatbuffer tables, with shapes that arithmetic can be done on."""

from __future__ import annotations

import math

from model_profiling.flatbuffer import FlatBuffer, Table
from model_profiling.program.records import Tensor

_MOST_DIMENSIONS = 16
_MOST_ELEMENTS = 1 << 48


def tensor(buffer: FlatBuffer, entry: Table, field: int, kind: str, dtype: str, *, constant: bool) -> Tensor:
    """A tensor whose sizes are the vector in `field` of `entry`."""
    shape = entry.ints(field, kind, "a tensor's shape")
    if len(shape) > _MOST_DIMENSIONS:
        raise buffer.damaged(f"a tensor has {len(shape)} dimensions", entry.at)
    if any(size < 0 for size in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise buffer.damaged("a tensor has an impossible shape", entry.at)
    return Tensor(shape=shape, dtype=dtype, constant=constant)
