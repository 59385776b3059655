"""The functions of a program or library (ELF, or Mach-O for Arm), by address, and what their instructions do.

An address gets a name only from a symbol whose range contains it, never from the nearest one. A function
without a symbol is identified by its start; an address in no function is unknown. Assembly functions often
have neither a symbol nor an unwind entry: such a function begins where code takes its address.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import lief
import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, system_reason

lief.logging.disable()
Addresses = NDArray[np.int64]
Words = NDArray[np.uint32]
Found = tuple[int, int, str]
"""A function's start, end and name."""
_ELF = b"\x7fELF\x02\x01"
_BUILD_ID = lief.ELF.Note.TYPE.GNU_BUILD_ID
# Relocations that write an address in the file itself.
_RELATIVE = (lief.ELF.Relocation.TYPE.AARCH64_RELATIVE, lief.ELF.Relocation.TYPE.X86_64_RELATIVE)
_NOT_DEBUGGING, _IN_SECTION = 0xEE, 0x0E
_LOAD, _EXECUTED = lief.ELF.Segment.TYPE.LOAD, lief.ELF.Segment.FLAGS.X


def read_functions(path: Path) -> CodeFunctions:
    """Read an ELF file (64-bit, little-endian) or a Mach-O file for Arm."""
    again = "install it again"
    try:
        data = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of values that LIEF has no name for
            return _read(data)
    except OSError as problem:
        raise FormatError(f"{path} cannot be read: {system_reason(problem)}", again) from problem
    except (ValueError, OverflowError) as problem:
        raise FormatError(f"{path} is a damaged library: {problem}", again) from problem


def _read(data: bytes) -> CodeFunctions:
    if program := lief.ELF.parse(data) if data[:6] == _ELF else None:
        return _of_elf(program)
    several = lief.MachO.parse(data)
    if library := several.take(lief.MachO.Header.CPU_TYPE.ARM64) if several else None:
        return _of_macho(library)
    raise ValueError("it is neither an ELF file nor a Mach-O file for Arm")


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


# ELF: symbols; the entries of `.eh_frame`, which every function of a library built for unwinding has, even
# hidden ones; and addresses that code takes or the loader writes.


def _of_elf(library: lief.ELF.Binary) -> CodeFunctions:
    symbols = [
        (symbol.value, symbol.value + symbol.size, str(symbol.name))
        for symbol in library.symbols
        if symbol.is_function and symbol.shndx and symbol.name and symbol.size > 0
    ]
    unwound = [(each.address, each.address + each.size, "") for each in library.functions if each.size]
    executable = [part for part in library.segments if part.type == _LOAD and part.has(_EXECUTED)]
    is_arm = library.header.machine_type == lief.ELF.ARCH.AARCH64
    code = [(part.virtual_address, _words(part.content)) for part in executable] if is_arm else []
    made = [arm_addresses(words, start) for start, words in code]
    taken = np.unique(np.concatenate([relocated_to(library), *(each[each % 4 == 0] for each in made)]))
    begun: list[Found] = []
    for part in executable:
        end = part.virtual_address + part.physical_size
        for first, last in _gaps(part.virtual_address, end, [*symbols, *unwound]):
            starts = taken[slice(*np.searchsorted(taken, (first, last)))].tolist()
            begun += [(begin, end, "") for begin, end in zip(starts, [*starts[1:], last], strict=False)]
    ids = (bytes(note.description) for note in library.notes if note.type == _BUILD_ID)
    unnamed = Extents.of([*unwound, *begun])
    return CodeFunctions(next(ids, b"").hex() or None, Extents.of(symbols), unnamed, tuple(code))


def relocated_to(library: lief.ELF.Binary) -> Addresses:
    """Return the addresses that the loader writes into tables."""
    entries = (entry for entry in library.dynamic_relocations if entry.type in _RELATIVE)
    return np.array([entry.addend for entry in entries], np.int64)


def _gaps(start: int, end: int, known: list[Found]) -> Iterator[tuple[int, int]]:
    """Yield the ranges from `start` to `end` that no known function covers."""
    for first, stop, _ in sorted(known):
        if first >= end:
            break
        if first > start:
            yield start, first
        start = max(start, stop)
    if start < end:
        yield start, end


def _of_macho(library: lief.MachO.Binary) -> CodeFunctions:
    """Return the functions, relative to the header; the file lists where each one begins."""
    code, listed = library.get_section("__text"), library.function_starts
    if code is None or listed is None:
        raise ValueError("it does not list its functions")
    begin, starts = code.virtual_address - library.imagebase, list(listed.functions)
    # Mach-O puts an underscore before C names.
    names = {
        symbol.value - library.imagebase: str(symbol.name)[1:]
        for symbol in library.symbols
        if symbol.raw_type & _NOT_DEBUGGING == _IN_SECTION
    }
    functions = [
        (start, end, names.get(start, ""))
        for start, end in zip(starts, [*starts[1:], begin + code.size], strict=False)
        if end > start
    ]
    return CodeFunctions(
        bytes(library.uuid.uuid).hex() if library.uuid else None,
        Extents.of([function for function in functions if function[2]]),
        Extents.of([(start, end, "") for start, end, _ in functions]),
        ((begin, _words(code.content)),),
    )


# Instructions of Arm.

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


def _words(code: memoryview) -> Words:
    return np.frombuffer(bytes(code), "<u4", len(code) // 4)  # a copy: LIEF's own goes with its library


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
    addresses = []
    for step in range(1, _NEAR + 1):
        after = words[np.minimum(places + step, len(words) - 1)].astype(np.int64)
        completes = (after & _ADD_MASK == _ADD) & (after >> 5 & 31 == register)
        addresses.append((base + (after >> 10 & 0xFFF))[completes])
    return np.unique(np.concatenate(addresses))


def arm_multiplies(words: Words) -> bool:
    is_one = np.zeros(len(words), bool)
    for bits, mask in _MULTIPLY_ADD:
        is_one |= words & np.uint32(mask) == np.uint32(bits)
    count = int(is_one.sum())
    return count >= _FEWEST and count >= _SHARE * len(words)
