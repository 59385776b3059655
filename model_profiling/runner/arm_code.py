"""What the instructions of 64-bit Arm tell of functions that have neither a symbol nor an unwind entry, as
those written in assembly often have not: where they begin, and whether they multiply and add."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_ADRP, _ADRP_MASK = 0x90000000, 0x9F000000
_ADD, _ADD_MASK = 0x91000000, 0xFFC00000
_NEAR = 8
"""How many instructions after the first half of an address its second half is looked for."""

# Instructions that multiply and add to what is there: (bits, mask), by the Arm architecture's encoding
# tables.
_MULTIPLY_ADD = (
    (0x0E20CC00, 0xBFA0FC00),  # FMLA (vectors)
    (0x0E400C00, 0xBFE0FC00),  # FMLA (vectors, half precision)
    (0x0F801000, 0xBF80F400),  # FMLA (by element)
    (0x0F001000, 0xBFC0F400),  # FMLA (by element, half precision)
    (0x1F000000, 0xFF208000),  # FMADD
    (0x0E209400, 0xBF20FC00),  # MLA (vectors)
    (0x2F000000, 0xBF00F400),  # MLA (by element)
    (0x0E208000, 0x9F20FC00),  # SMLAL, UMLAL (vectors)
    (0x0F002000, 0x9F00F400),  # SMLAL, UMLAL (by element)
    (0x0E009400, 0x9F20FC00),  # SDOT, UDOT (vectors)
    (0x0F00E000, 0x9F00F400),  # SDOT, UDOT (by element)
    (0x4E80A400, 0xDFE0F400),  # SMMLA, UMMLA, USMMLA
    (0x6E40EC00, 0xFFE0FC00),  # BFMMLA
    (0x2E40FC00, 0xBFE0FC00),  # BFDOT
)
_FEWEST, _SHARE = 4, 0.05
"""A function multiplies if it has that many such instructions and they are that share of all."""


def words_of(data: bytes, offset: int, size: int) -> Words:
    return np.frombuffer(data, "<u4", size // 4, offset)


def addresses_made(words: Words, address: int) -> NDArray[np.int64]:
    """Every address that code at `address` puts together from its page and its place there, sorted."""
    if not len(words):
        return np.zeros(0, np.int64)
    places = np.flatnonzero(words & _ADRP_MASK == _ADRP)
    code = words[places].astype(np.int64)
    pages = (code >> 5 & 0x7FFFF) << 2 | code >> 29 & 3
    pages = np.where(pages >= 1 << 20, pages - (1 << 21), pages)
    base = (address + 4 * places & ~0xFFF) + (pages << 12)
    register = code & 31
    found = []
    for step in range(1, _NEAR + 1):
        after = words[np.minimum(places + step, len(words) - 1)].astype(np.int64)
        completes = (after & _ADD_MASK == _ADD) & (after >> 5 & 31 == register)
        found.append((base + (after >> 10 & 0xFFF))[completes])
    return np.unique(np.concatenate(found))


def multiplies(words: Words) -> bool:
    """Whether a function of these instructions multiplies and adds as a matrix kernel does."""
    is_one = np.zeros(len(words), bool)
    for bits, mask in _MULTIPLY_ADD:
        is_one |= words & np.uint32(mask) == np.uint32(bits)
    count = int(is_one.sum())
    return count >= _FEWEST and count >= _SHARE * len(words)
