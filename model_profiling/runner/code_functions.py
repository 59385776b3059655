"""Which function of a program or library an address lies in, by what its file says: symbols with sizes, and
the entries from which exceptions are unwound (ELF) or the list of function starts (Mach-O).

An address is given a name only where a symbol's extent holds it. A function without a symbol is still one,
told apart by where it begins; what lies in no function at all is unknown. The nearest name is never taken.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model_profiling.errors import FormatError, system_reason
from model_profiling.runner import arm_code

Addresses = NDArray[np.int64]
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Function:
    """Where it begins and ends in its file's own addresses, and its name if it has one."""

    start: int
    end: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Extents:
    """Functions by address; `starts` is sorted, and each ends before its `ends`."""

    starts: Addresses
    ends: Addresses
    names: tuple[str, ...] = ()
    """One for each, or none at all."""

    @classmethod
    def of(cls, found: list[tuple[int, int, str]]) -> Extents:
        """Of (start, end, name); of several that begin at one address the longest, then the first by name."""
        best: dict[int, tuple[int, str]] = {}
        for start, end, name in sorted(found, key=lambda each: (each[0], -each[1], each[2])):
            best.setdefault(start, (end, name))
        starts = np.array(list(best), np.int64)
        ends = np.array([end for end, _ in best.values()], np.int64)
        return cls(starts, ends, tuple(name for _, name in best.values()))

    @classmethod
    def joined(cls, one: Extents, other: Extents) -> Extents:
        """Of two without names."""
        starts, ends = np.concatenate([one.starts, other.starts]), np.concatenate([one.ends, other.ends])
        order = np.argsort(starts, kind="stable")
        return cls(starts[order], ends[order])

    def holding(self, address: int) -> Function | None:
        place = int(np.searchsorted(self.starts, address, side="right")) - 1
        if place < 0 or address >= self.ends[place]:
            return None
        start, end = int(self.starts[place]), int(self.ends[place])
        return Function(start, end, self.names[place] if self.names else "")


_NONE = Extents(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class CodeFunctions:
    """The functions of one file. `build_id` is None where the file has none."""

    build_id: str | None
    named: Extents = field(default=_NONE)
    unnamed: Extents = field(default=_NONE)
    code: tuple[tuple[int, arm_code.Words], ...] = ()
    """The instructions from an address on; of Arm files alone."""

    def holding(self, address: int) -> Function | None:
        return self.named.holding(address) or self.unnamed.holding(address)

    def multiplies(self, function: Function) -> bool | None:
        """Whether its instructions multiply and add as a matrix kernel's do; None where they are not read."""
        for begin, words in self.code:
            if begin <= function.start < begin + 4 * len(words):
                first, last = (function.start - begin) // 4, (function.end - begin) // 4
                return arm_code.multiplies(words[first:last])
        return None


def read_functions(path: Path) -> CodeFunctions:
    """Of an ELF file (64 bits, little-endian) or a Mach-O file for Arm."""
    # Here: both import the records above.
    from model_profiling.runner.elf_functions import parse_elf
    from model_profiling.runner.macho_functions import parse_macho

    try:
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path} is too large for a library", "install it again")
        data = path.read_bytes()
    except OSError as problem:
        raise FormatError(f"{path} cannot be read: {system_reason(problem)}", "install it again") from problem
    parse = parse_elf if data[:4] == b"\x7fELF" else parse_macho
    try:
        return parse(data)
    except (struct.error, ValueError, OverflowError, IndexError) as problem:
        raise FormatError(f"{path} is a damaged library: {problem}", "install it again") from problem
