"""The functions of an ELF file: its symbols, and the entries of `.eh_frame`, which every function of a
library built for unwinding has, hidden ones too. Functions in assembly often have neither: where such a one
begins is known where code takes its address, or the loader writes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model_profiling.runner import arm_code, x86_code
from model_profiling.runner.elf import AARCH64, X86_64

# Which function of a program or library an address lies in, by what its file says: symbols with sizes, and
# the entries from which exceptions are unwound (ELF) or the list of function starts (Mach-O).
# An address is given a name only where a symbol's extent holds it. A function without a symbol is still one,
# told apart by where it begins; what lies in no function at all is unknown. The nearest name is never taken.

Addresses = NDArray[np.int64]


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


_LOAD, _NOTE, _EH_FRAME_HDR = 1, 4, 0x6474E550
_SYMTAB, _RELA, _DYNSYM = 2, 4, 11
_FUNCTION = 2
_BUILD_ID = 3
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_RELATIVE = {AARCH64: 1027, X86_64: 8}
"""The type of a relocation that writes an address in the file itself."""
_TABLE = np.dtype([("start", "<i4"), ("entry", "<i4")])
# How an address is written (DWARF's exception header encodings): low bits the format, high bits what it is
# relative to.
_FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}
_DATA_RELATIVE = 0x30
_LONGEST_NAME = 4096


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int
    executable: bool


def parse_elf(data: bytes) -> CodeFunctions:
    """Raises `struct.error` or `ValueError` where the file is damaged."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is not a 64-bit little-endian ELF file")
    segments = _segments(data)
    named, unwound = _symbols(data), _unwind_entries(data, segments)
    (machine,) = struct.unpack_from("<H", data, 18)
    executable = [each for each in segments if each.executable]
    made = [_addresses_made(data, each, machine) for each in executable] + _relocated_to(data, machine)
    taken = np.unique(np.concatenate(made)) if made else np.zeros(0, np.int64)
    unnamed = Extents.joined(unwound, _address_taken(executable, taken, [named, unwound]))
    code = tuple(
        (each.address, arm_code.words_of(data, each.offset, each.size))
        for each in executable
        if machine == AARCH64
    )
    return CodeFunctions(_build_id(data, segments), named, unnamed, code)


def _segments(data: bytes) -> list[_Segment]:
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = []
    for place in range(count):
        kind, flags, offset, address, _, length, _, _ = struct.unpack_from(
            "<IIQQQQQQ", data, table + size * place
        )
        found.append(_Segment(kind, offset, address, length, kind == _LOAD and bool(flags & 1)))
    return found


def _build_id(data: bytes, segments: list[_Segment]) -> str | None:
    for segment in segments:
        at, end = segment.offset, segment.offset + segment.size
        while segment.kind == _NOTE and at + 12 <= min(end, len(data)):
            name, length, kind = struct.unpack_from("<III", data, at)
            content = at + 12 + (name + 3) // 4 * 4
            if kind == _BUILD_ID and data[at + 12 : at + 16] == b"GNU\0":
                return data[content : content + length].hex()
            at = content + (length + 3) // 4 * 4
    return None


def _sections(data: bytes) -> list[tuple[int, ...]]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [struct.unpack_from("<IIQQQQIIQQ", data, table + size * place) for place in range(count)]


def _symbols(data: bytes) -> Extents:
    sections = _sections(data)
    found: list[tuple[int, int, str]] = []
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind not in (_SYMTAB, _DYNSYM):
            continue
        if link >= len(sections):
            raise ValueError("its symbols have no names")
        strings = data[sections[link][4] : sections[link][4] + sections[link][5]]
        every = np.frombuffer(data, _SYMBOL, length // _SYMBOL.itemsize, offset)
        functions = every[(every["info"] & 15 == _FUNCTION) & (every["section"] != 0) & (every["size"] > 0)]
        functions = functions[(functions["value"] < 1 << 62) & (functions["size"] < 1 << 62)]
        for name, value, extent in zip(
            functions["name"].tolist(), functions["value"].tolist(), functions["size"].tolist(), strict=True
        ):
            found.append((value, value + extent, _text(strings, name)))
    return Extents.of([each for each in found if each[2]])


def _text(strings: bytes, start: int) -> str:
    stop = strings.find(b"\0", start, start + _LONGEST_NAME)
    return strings[start:stop].decode("utf-8", "replace") if stop >= 0 else ""


def _unwind_entries(data: bytes, segments: list[_Segment]) -> Extents:
    """By the sorted table in `.eh_frame_hdr`; each entry of it leads to one that knows the function's
    length."""
    header = next((each for each in segments if each.kind == _EH_FRAME_HDR), None)
    if header is None:
        return Extents.of([])
    version, pointer, counted, laid_out = struct.unpack_from("<BBBB", data, header.offset)
    if version != 1 or laid_out != _DATA_RELATIVE | 0x0B or counted & 0x0F not in _FORMATS:
        return Extents.of([])  # no table that linkers make: its functions are then not told apart
    at = header.offset + 4 + _size_of(pointer)
    (count,) = struct.unpack_from(_FORMATS[counted & 0x0F], data, at)
    table = np.frombuffer(data, _TABLE, count, at + _size_of(counted))
    lengths = _Lengths(data, segments)
    found = []
    for start, entry in zip(table["start"].tolist(), table["entry"].tolist(), strict=True):
        length = lengths.of_entry(header.address + entry)
        if length > 0:
            found.append((header.address + start, header.address + start + length, ""))
    return Extents.of(found)


def _addresses_made(data: bytes, segment: _Segment, machine: int) -> NDArray[np.int64]:
    if machine == AARCH64:
        words = arm_code.words_of(data, segment.offset, segment.size)
        made = arm_code.addresses_made(words, segment.address)
        aligned: NDArray[np.int64] = made[made % 4 == 0]
        return aligned
    if machine == X86_64:
        code = np.frombuffer(data, np.uint8, segment.size, segment.offset)
        return x86_code.addresses_made(code, segment.address)
    return np.zeros(0, np.int64)


def _relocated_to(data: bytes, machine: int) -> list[NDArray[np.int64]]:
    """The addresses that the loader writes into tables."""
    found = []
    for _, kind, _, _, offset, length, *_ in _sections(data):
        if kind == _RELA:
            every = np.frombuffer(data, _RELOCATION, length // _RELOCATION.itemsize, offset)
            found.append(every["addend"][every["type"] == _RELATIVE.get(machine, -1)].astype(np.int64))
    return found


def _address_taken(code: list[_Segment], taken: NDArray[np.int64], known: list[Extents]) -> Extents:
    """Functions between those that are `known`: they begin where an address that is `taken` leads to."""
    found: list[tuple[int, int, str]] = []
    for segment in code:
        for low, high in _between(segment.address, segment.address + segment.size, known):
            first, last = np.searchsorted(taken, (low, high))
            starts = taken[first:last].tolist()
            found += [(start, end, "") for start, end in zip(starts, [*starts[1:], high], strict=False)]
    return Extents.of(found)


def _between(begin: int, end: int, known: list[Extents]) -> list[tuple[int, int]]:
    """What of [begin, end) no known function holds."""
    starts = np.concatenate([each.starts for each in known])
    ends = np.concatenate([each.ends for each in known])
    order = np.argsort(starts, kind="stable")
    gaps, at = [], begin
    for start, stop in zip(starts[order].tolist(), ends[order].tolist(), strict=True):
        if start >= end:
            break
        if start > at:
            gaps.append((at, start))
        at = max(at, stop)
    return [*gaps, (at, end)] if at < end else gaps


def _size_of(encoding: int) -> int:
    if encoding & 0x0F not in _FORMATS:
        raise ValueError(f"addresses in its unwind table are written in an unknown way ({encoding:#x})")
    return struct.calcsize(_FORMATS[encoding & 0x0F])


class _Lengths:
    """Reads entries of `.eh_frame`; how their addresses are written is said once for many."""

    def __init__(self, data: bytes, segments: list[_Segment]) -> None:
        self._data = data
        self._loaded = [segment for segment in segments if segment.kind == _LOAD]
        self._formats: dict[int, str] = {}

    def of_entry(self, address: int) -> int:
        at = self._offset(address)
        length, back = struct.unpack_from("<II", self._data, at)
        if length in (0, 0xFFFFFFFF) or back == 0:
            return 0
        common = at + 4 - back
        if common not in self._formats:
            self._formats[common] = self._format(common)
        form = self._formats[common]
        size = struct.calcsize(form)
        (extent,) = struct.unpack_from(form.upper() if form != "<Q" else form, self._data, at + 8 + size)
        return int(extent) if extent < 1 << 40 else 0

    def _offset(self, address: int) -> int:
        for segment in self._loaded:
            if segment.address <= address < segment.address + segment.size:
                return address - segment.address + segment.offset
        raise ValueError("an unwind entry lies outside of it")

    def _format(self, at: int) -> str:
        """How the entries that share the one at `at` write addresses: letter R of its augmentation."""
        if at < 0:
            raise ValueError("an unwind entry lies before it begins")
        data = self._data
        stop = data.index(b"\0", at + 9, at + 9 + 16)
        letters = data[at + 9 : stop].decode("ascii")
        at = self._after_number(self._after_number(stop + 1))  # alignment of code and of data
        at = self._after_number(at) if data[at] >= 0x80 else at + 1  # the return address's register
        if not letters.startswith("z"):
            return "<Q"
        at = self._after_number(at)
        for letter in letters[1:]:
            if letter == "R":
                encoding = data[at]
                _size_of(encoding)
                return _FORMATS[encoding & 0x0F]
            if letter == "P":
                at += 1 + _size_of(data[at])
            elif letter == "L":
                at += 1
        return "<Q"

    def _after_number(self, at: int) -> int:
        """Past a number of seven bits a byte."""
        for place in range(at, at + 10):
            if self._data[place] < 0x80:
                return place + 1
        raise ValueError("a number in its unwind entries has no end")
