"""What the instructions of x86_64 tell of functions that have neither a symbol nor an unwind entry, as
XNNPACK's kernels in assembly (AVX-512): where they begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# LEA of an address relative to the instruction's own: a prefix for 64 bits, the opcode, and a byte that names
# the register; four bytes of distance from the next instruction follow.
_WIDE, _WIDE_MASK = 0x48, 0xFB
_LEA = 0x8D
_RELATIVE, _RELATIVE_MASK = 0x05, 0xC7
_LENGTH = 7


def addresses_made(code: NDArray[np.uint8], address: int) -> NDArray[np.int64]:
    """Every address that code at `address` takes, sorted. Bytes that only look like the instruction lead
    anywhere, seldom into the few gaps between functions."""
    if len(code) < _LENGTH:
        return np.zeros(0, np.int64)
    last = len(code) - _LENGTH + 1
    is_one = (code[:last] & _WIDE_MASK == _WIDE) & (code[1 : last + 1] == _LEA)
    places = np.flatnonzero(is_one & (code[2 : last + 2] & _RELATIVE_MASK == _RELATIVE))
    distance = np.zeros(len(places), np.int64)
    for byte in range(4):
        distance |= code[places + 3 + byte].astype(np.int64) << (8 * byte)
    distance = np.where(distance >= 1 << 31, distance - (1 << 32), distance)
    return np.unique(address + places + _LENGTH + distance)
