"""The functions of a program or library, by address, and what their instructions do.

An address gets a name only from a symbol whose range contains it, never from the nearest one. A function
without a symbol is identified by its start; an address in no function is unknown. Assembly functions often
have neither a symbol nor an unwind entry: such a function begins where code takes its address.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.int64]
Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Function:
    """A function's range in its file's own addresses, and its name if it has one."""

    start: int
    end: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Extents:
    """Functions by address; `starts` is sorted, and `ends` is exclusive."""

    starts: Addresses
    ends: Addresses
    names: tuple[str, ...]

    @classmethod
    def of(cls, found: list[tuple[int, int, str]]) -> Extents:
        """Build from (start, end, name); for equal starts keep the longest, then the first by name."""
        best: dict[int, tuple[int, str]] = {}
        for start, end, name in sorted(found, key=lambda each: (each[0], -each[1], each[2])):
            best.setdefault(start, (end, name))
        ends = np.array([end for end, _ in best.values()], np.int64)
        return cls(np.array(list(best), np.int64), ends, tuple(name for _, name in best.values()))

    def holding(self, address: int) -> Function | None:
        place = int(np.searchsorted(self.starts, address, side="right")) - 1
        if place < 0 or address >= self.ends[place]:
            return None
        return Function(int(self.starts[place]), int(self.ends[place]), self.names[place])


@dataclass(frozen=True, slots=True)
class CodeFunctions:
    """The functions of one file; `build_id` is None if it has none."""

    build_id: str | None
    named: Extents = field(default_factory=lambda: Extents.of([]))
    unnamed: Extents = field(default_factory=lambda: Extents.of([]))
    code: tuple[tuple[int, Words], ...] = ()
    """The instructions from an address on; for Arm files only."""

    def holding(self, address: int) -> Function | None:
        return self.named.holding(address) or self.unnamed.holding(address)

    def multiplies(self, function: Function) -> bool | None:
        """Whether it multiplies and adds as a matrix kernel does; None if its instructions were not read."""
        for begin, words in self.code:
            if begin <= function.start < begin + 4 * len(words):
                first, last = (function.start - begin) // 4, (function.end - begin) // 4
                return arm_multiplies(words[first:last])
        return None


_ADRP, _ADRP_MASK = 0x90000000, 0x9F000000
_ADD, _ADD_MASK = 0x91000000, 0xFFC00000
_NEAR = 8
"""How many instructions after the first half of an address to search for its second half."""

# Multiply-accumulate instructions as (bits, mask), from the Arm architecture's encoding tables.
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
"""A function multiplies if it has at least this many such instructions, and this share of all."""


def arm_words(data: bytes, offset: int, size: int) -> Words:
    return np.frombuffer(data, "<u4", size // 4, offset)


def arm_addresses(words: Words, address: int) -> Addresses:
    """Return every address that code at `address` builds from a page and an offset, sorted."""
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


def arm_multiplies(words: Words) -> bool:
    is_one = np.zeros(len(words), bool)
    for bits, mask in _MULTIPLY_ADD:
        is_one |= words & np.uint32(mask) == np.uint32(bits)
    count = int(is_one.sum())
    return count >= _FEWEST and count >= _SHARE * len(words)


# x86_64: LEA of an address relative to the instruction: a 64-bit prefix, the opcode, a byte that names the
# register, and four bytes of distance from the next instruction.

_WIDE, _WIDE_MASK = 0x48, 0xFB
_LEA = 0x8D
_RELATIVE, _RELATIVE_MASK = 0x05, 0xC7
_LENGTH = 7


def x86_addresses(code: NDArray[np.uint8], address: int) -> Addresses:
    """Return every address that code at `address` takes, sorted. Bytes that only look like the instruction
    give random addresses, which seldom fall into the few gaps between functions."""
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
