"""The functions of a program or library (ELF, or Mach-O for Arm), by address, and what their instructions do.

An address gets a name only from a symbol whose range contains it, never from the nearest one. A function
without a symbol is identified by its start; an address in no function is unknown. Assembly functions often
have neither a symbol nor an unwind entry: such a function begins where code takes its address.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_profiling.core.errors import FormatError, system_reason
from model_profiling.runner import elf

Addresses = NDArray[np.int64]
Words = NDArray[np.uint32]
Found = tuple[int, int, str]
"""A function's start, end and name."""
_LONGEST_NAME = 4096
_MOST_BYTES = 2 << 30


def read_functions(path: Path) -> CodeFunctions:
    """Read an ELF file (64-bit, little-endian) or a Mach-O file for Arm."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FormatError(f"{path} is too large to be a library", "install it again")
        data = path.read_bytes()
    except OSError as problem:
        raise FormatError(f"{path} cannot be read: {system_reason(problem)}", "install it again") from problem
    try:
        return _parse_elf(data) if data[:4] == b"\x7fELF" else _parse_macho(data)
    except (struct.error, ValueError, OverflowError, IndexError) as problem:
        raise FormatError(f"{path} is a damaged library: {problem}", "install it again") from problem


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

_NOTE, _EH_FRAME_HDR = 4, 0x6474E550
_SYMTAB, _RELA, _DYNSYM = 2, 4, 11
_FUNCTION = 2
_BUILD_ID = 3
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_RELATIVE = {elf.AARCH64: 1027, elf.X86_64: 8}
"""The type of a relocation that writes an address in the file itself."""
_UNWIND_HEADER = b"\x01\x1b\x03\x3b"
"""Version 1, with the pointer, the count and the table in four bytes each, as linkers write them."""
_UNWIND_ENTRY = np.dtype([("start", "<i4"), ("entry", "<i4")])


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def _parse_elf(data: bytes) -> CodeFunctions:
    """Return the functions; raise `struct.error` or `ValueError` if the file is damaged."""
    if not elf.is_elf(data):
        raise ValueError("it is not a 64-bit little-endian ELF file")
    segments, machine = elf.segments_of(data), elf.machine_of(data)
    symbols, unwound = _symbols(data), _unwind_entries(data, segments)
    executable = [segment for segment in segments if segment.executable]
    made = [_addresses_made(data, segment, machine) for segment in executable]
    taken = np.unique(np.concatenate([np.zeros(0, np.int64), *made, *relocated_to(data)]))
    begun: list[Found] = []
    for first, last in (gap for segment in executable for gap in _gaps(segment, [*symbols, *unwound])):
        starts = taken[slice(*np.searchsorted(taken, (first, last)))].tolist()
        begun += [(start, end, "") for start, end in zip(starts, [*starts[1:], last], strict=False)]
    arm = executable if machine == elf.AARCH64 else []
    code = tuple((segment.address, arm_words(data, segment.offset, segment.size)) for segment in arm)
    unnamed = Extents.of([*unwound, *begun])
    return CodeFunctions(_build_id(data, segments), Extents.of(symbols), unnamed, code)


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    places = range(table, table + size * count, size) if size else ()
    return [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, place)) for place in places]


def _build_id(data: bytes, segments: list[elf.Segment]) -> str | None:
    for segment in segments:
        at, end = segment.offset, segment.offset + segment.size
        while segment.kind == _NOTE and at + 12 <= min(end, len(data)):
            name, length, kind = struct.unpack_from("<III", data, at)
            content = at + 12 + (name + 3) // 4 * 4
            if kind == _BUILD_ID and data[at + 12 : at + 16] == b"GNU\0":
                return data[content : content + length].hex()
            at = content + (length + 3) // 4 * 4
    return None


def _symbols(data: bytes) -> list[Found]:
    sections = _sections(data)
    symbols: list[Found] = []
    for section in sections:
        if section.kind not in (_SYMTAB, _DYNSYM):
            continue
        if section.link >= len(sections):
            raise ValueError("its symbols have no names")
        names = sections[section.link]
        strings = data[names.offset : names.offset + names.size]
        every = np.frombuffer(data, _SYMBOL, section.size // _SYMBOL.itemsize, section.offset)
        functions = every[(every["info"] & 15 == _FUNCTION) & (every["section"] != 0) & (every["size"] > 0)]
        functions = functions[(functions["value"] < 1 << 62) & (functions["size"] < 1 << 62)]
        for name, _, _, _, value, extent in functions.tolist():
            stop = strings.find(b"\0", name, name + _LONGEST_NAME)
            if stop > name:
                symbols.append((value, value + extent, strings[name:stop].decode("utf-8", "replace")))
    return symbols


def _unwind_entries(data: bytes, segments: list[elf.Segment]) -> list[Found]:
    """Read the sorted table in `.eh_frame_hdr`; each row leads to an entry with the function's length. Return
    nothing if the linker used another format than four bytes each."""
    header = next((segment for segment in segments if segment.kind == _EH_FRAME_HDR), None)
    if header is None or data[header.offset : header.offset + 4] != _UNWIND_HEADER:
        return []
    (count,) = struct.unpack_from("<I", data, header.offset + 8)
    table = np.frombuffer(data, _UNWIND_ENTRY, count, header.offset + 12)
    starts, entries = (header.address + table[name].astype(np.int64) for name in ("start", "entry"))
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    functions: list[Found] = []
    for segment in segments:
        if segment.kind == elf.LOAD:
            inside = (entries >= segment.address) & (entries < segment.address + segment.size - 16)
            at = entries[inside] - segment.address + segment.offset
            begins = entries[inside] + 8 + words[at + 8].astype(np.int32)
            lengths = words[at + 12].astype(np.int64)
            right = (begins == starts[inside]) & (lengths > 0)
            pairs = zip(begins[right].tolist(), lengths[right].tolist(), strict=True)
            functions += [(start, start + length, "") for start, length in pairs]
    return functions


def _addresses_made(data: bytes, segment: elf.Segment, machine: int) -> Addresses:
    if machine != elf.AARCH64:
        return np.zeros(0, np.int64)
    made = arm_addresses(arm_words(data, segment.offset, segment.size), segment.address)
    return np.asarray(made[made % 4 == 0])


def relocated_to(data: bytes) -> list[Addresses]:
    """Return the addresses that the loader writes into tables."""
    addresses = []
    for section in _sections(data):
        if section.kind == _RELA:
            every = np.frombuffer(data, _RELOCATION, section.size // _RELOCATION.itemsize, section.offset)
            is_relative = every["type"] == _RELATIVE.get(elf.machine_of(data), -1)
            addresses.append(every["addend"][is_relative].astype(np.int64))
    return addresses


def _gaps(code: elf.Segment, known: list[Found]) -> list[tuple[int, int]]:
    """Return the ranges of `code` that no known function covers."""
    gaps, at, end = [], code.address, code.address + code.size
    for start, stop, _ in sorted(known):
        if start >= end:
            break
        if start > at:
            gaps.append((at, start))
        at = max(at, stop)
    return [*gaps, (at, end)] if at < end else gaps


# Mach-O for Arm: the file lists where each function begins (LC_FUNCTION_STARTS), and has symbols there.

_MAGIC, _FAT_MAGIC = 0xFEEDFACF, 0xCAFEBABE
_ARM64 = 0x0100000C
_MACHO_SYMTAB, _SEGMENT_64, _UUID, _FUNCTION_STARTS = 0x2, 0x19, 0x1B, 0x26
_DEBUGGING, _KIND, _IN_SECTION = 0xE0, 0x0E, 0x0E
_MACHO_SYMBOL = np.dtype(
    [("name", "<u4"), ("type", "u1"), ("section", "u1"), ("more", "<u2"), ("value", "<u8")]
)
_MOST_COMMANDS = 10_000


def _parse_macho(data: bytes) -> CodeFunctions:
    """Return the functions, relative to the header; raise `struct.error` or `ValueError` if damaged."""
    data = _arm_part(data)
    (count,) = struct.unpack_from("<I", data, 16)
    if count > _MOST_COMMANDS:
        raise ValueError("it has too many load commands")
    uuid, begin, length, at = None, 0, 0, 32
    listed, symbols = (0, 0), (0, 0, 0, 0)
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, at)
        if size < 8:
            raise ValueError("a load command has no length")
        if kind == _UUID:
            uuid = data[at + 8 : at + 24].hex()
        elif kind == _FUNCTION_STARTS:
            listed = struct.unpack_from("<II", data, at + 8)
        elif kind == _MACHO_SYMTAB:
            symbols = struct.unpack_from("<IIII", data, at + 8)
        elif kind == _SEGMENT_64 and data[at + 8 : at + 24].rstrip(b"\0") == b"__TEXT":
            (begin,) = struct.unpack_from("<Q", data, at + 24)
            length = _end_of_code(data, at) - begin
        at += size
    starts = _function_starts(data, *listed)
    names = _macho_names(data, begin, symbols)
    functions = [
        (start, end, names.get(start, ""))
        for start, end in zip(starts, [*starts[1:], length], strict=False)
        if end > start
    ]
    named = Extents.of([function for function in functions if function[2]])
    unnamed = Extents.of([(start, end, "") for start, end, _ in functions])
    # The header begins both the file and the loaded image, and the code follows it.
    return CodeFunctions(uuid, named, unnamed, ((0, arm_words(data, 0, min(length, len(data)))),))


def _arm_part(data: bytes) -> bytes:
    if len(data) >= 8 and struct.unpack_from(">I", data)[0] == _FAT_MAGIC:
        (count,) = struct.unpack_from(">I", data, 4)
        for place in range(min(count, 64)):
            kind, _, offset, size, _ = struct.unpack_from(">IIIII", data, 8 + 20 * place)
            if kind == _ARM64:
                return data[offset : offset + size]
    if struct.unpack_from("<I", data)[0] != _MAGIC:
        raise ValueError("it is neither an ELF file nor a Mach-O file for Arm")
    return data


def _end_of_code(data: bytes, segment: int) -> int:
    (count,) = struct.unpack_from("<I", data, segment + 64)
    for place in range(min(count, 255)):
        section = segment + 72 + 80 * place
        if data[section : section + 16].rstrip(b"\0") == b"__text":
            address, size = struct.unpack_from("<QQ", data, section + 32)
            return int(address + size)
    raise ValueError("it has no code")


def _function_starts(data: bytes, offset: int, size: int) -> list[int]:
    """Decode the distances between functions, seven bits per byte; a distance of 0 ends the list."""
    if offset + size > len(data):
        raise ValueError("its list of functions is cut off")
    starts: list[int] = []
    address = distance = shift = 0
    for byte in data[offset : offset + size]:
        distance |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise ValueError("a distance between functions has no end")
        if byte < 0x80:
            if distance == 0:
                break
            address += distance
            if address >= 1 << 62:
                raise ValueError("a function is outside the file")
            starts.append(address)
            distance = shift = 0
    return starts


def _macho_names(data: bytes, begin: int, table: tuple[int, int, int, int]) -> dict[int, str]:
    offset, count, strings, length = table
    text = data[strings : strings + length]
    every = np.frombuffer(data, _MACHO_SYMBOL, count, offset)
    chosen = every[(every["type"] & _DEBUGGING == 0) & (every["type"] & _KIND == _IN_SECTION)]
    names: dict[int, str] = {}
    for name, value in zip(chosen["name"].tolist(), chosen["value"].tolist(), strict=True):
        stop = text.find(b"\0", name, name + _LONGEST_NAME)
        if stop > name:
            # Mach-O puts an underscore before C names.
            names.setdefault(value - begin, text[name:stop].decode("utf-8", "replace")[1:])
    return names


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
