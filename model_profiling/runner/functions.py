"""The functions of a program or library (ELF), by address.

An address gets a name only from a symbol whose range contains it, never from the nearest one. A function
without a symbol is identified by its start; an address in no function is unknown.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import lief
import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, system_reason

lief.logging.disable()
Addresses = NDArray[np.int64]
Found = tuple[int, int, str]
"""A function's start, end and name."""
_ELF = b"\x7fELF\x02\x01"
_BUILD_ID = lief.ELF.Note.TYPE.GNU_BUILD_ID


def read_functions(path: Path) -> CodeFunctions:
    """Read a 64-bit, little-endian ELF file."""
    again = "install it again"
    try:
        data = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values that LIEF has no name for
            library = lief.ELF.parse(data) if data[:6] == _ELF else None
            if library is None:
                raise ValueError("it is no ELF file")
            return _of_elf(library)
    except OSError as problem:
        raise FormatError(f"{path} cannot be read: {system_reason(problem)}", again) from problem
    except (ValueError, OverflowError) as problem:
        raise FormatError(f"{path} is a damaged library: {problem}", again) from problem


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
    def of(cls, functions: list[Found]) -> Extents:
        """Build from (start, end, name); for equal starts keep the longest, then the first by name."""
        best: dict[int, tuple[int, str]] = {}
        for start, end, name in sorted(functions, key=lambda one: (one[0], -one[1], one[2])):
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

    def holding(self, address: int) -> Function | None:
        return self.named.holding(address) or self.unnamed.holding(address)


# ELF: symbols, and the entries of `.eh_frame`, which functions of a library built for unwinding have, even
# hidden ones; assembly functions often have neither.


def _of_elf(library: lief.ELF.Binary) -> CodeFunctions:
    symbols = [
        (symbol.value, symbol.value + symbol.size, str(symbol.name))
        for symbol in library.symbols
        if symbol.is_function and symbol.shndx and symbol.name and symbol.size > 0
    ]
    unwound = [(each.address, each.address + each.size, "") for each in library.functions if each.size]
    ids = (bytes(note.description) for note in library.notes if note.type == _BUILD_ID)
    return CodeFunctions(next(ids, b"").hex() or None, Extents.of(symbols), Extents.of(unwound))
