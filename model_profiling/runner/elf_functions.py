"""The functions of an ELF file: its symbols; the entries of `.eh_frame`, which every function of a library
built for unwinding has, even hidden ones; and addresses that code takes or the loader writes."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from model_profiling.runner.elf import (
    AARCH64,
    LOAD,
    LONGEST_NAME,
    X86_64,
    Segment,
    is_elf,
    machine_of,
    segments_of,
)
from model_profiling.runner.functions import (
    Addresses,
    CodeFunctions,
    Extents,
    arm_addresses,
    arm_words,
    x86_addresses,
)

_NOTE, _EH_FRAME_HDR = 4, 0x6474E550
_SYMTAB, _RELA, _DYNSYM = 2, 4, 11
_FUNCTION = 2
_BUILD_ID = 3
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("place", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_RELATIVE = {AARCH64: 1027, X86_64: 8}
"""The type of a relocation that writes an address in the file itself."""
_UNWIND_HEADER = b"\x01\x1b\x03\x3b"
"""Version 1, with the pointer, the count and the table in four bytes each, as linkers write them."""
_UNWIND_ENTRY = np.dtype([("start", "<i4"), ("entry", "<i4")])

Found = tuple[int, int, str]
"""A function's start, end and name."""


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


def parse_elf(data: bytes) -> CodeFunctions:
    """Return the functions; raise `struct.error` or `ValueError` if the file is damaged."""
    if not is_elf(data):
        raise ValueError("it is not a 64-bit little-endian ELF file")
    segments, machine = segments_of(data), machine_of(data)
    symbols, unwound = _symbols(data), _unwind_entries(data, segments)
    executable = [each for each in segments if each.executable]
    made = [_addresses_made(data, each, machine) for each in executable]
    taken = np.unique(np.concatenate([np.zeros(0, np.int64), *made, *relocated_to(data)]))
    between = [gap for each in executable for gap in _gaps(each, [*symbols, *unwound])]
    code = tuple(
        (each.address, arm_words(data, each.offset, each.size)) for each in executable if machine == AARCH64
    )
    unnamed = Extents.of([*unwound, *(found for gap in between for found in _begun_in(gap, taken))])
    return CodeFunctions(_build_id(data, segments), Extents.of(symbols), unnamed, code)


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    places = range(table, table + size * count, size) if size else ()
    return [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, place)) for place in places]


def _build_id(data: bytes, segments: list[Segment]) -> str | None:
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
    found: list[Found] = []
    for each in sections:
        if each.kind not in (_SYMTAB, _DYNSYM):
            continue
        if each.link >= len(sections):
            raise ValueError("its symbols have no names")
        names = sections[each.link]
        strings = data[names.offset : names.offset + names.size]
        every = np.frombuffer(data, _SYMBOL, each.size // _SYMBOL.itemsize, each.offset)
        functions = every[(every["info"] & 15 == _FUNCTION) & (every["section"] != 0) & (every["size"] > 0)]
        functions = functions[(functions["value"] < 1 << 62) & (functions["size"] < 1 << 62)]
        for name, _, _, _, value, extent in functions.tolist():
            stop = strings.find(b"\0", name, name + LONGEST_NAME)
            if stop > name:
                found.append((value, value + extent, strings[name:stop].decode("utf-8", "replace")))
    return found


def _unwind_entries(data: bytes, segments: list[Segment]) -> list[Found]:
    """Read the sorted table in `.eh_frame_hdr`; each row leads to an entry with the function's length. Return
    nothing if the linker used another format than four bytes each."""
    header = next((each for each in segments if each.kind == _EH_FRAME_HDR), None)
    if header is None or data[header.offset : header.offset + 4] != _UNWIND_HEADER:
        return []
    (count,) = struct.unpack_from("<I", data, header.offset + 8)
    table = np.frombuffer(data, _UNWIND_ENTRY, count, header.offset + 12)
    starts, entries = (header.address + table[name].astype(np.int64) for name in ("start", "entry"))
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    found: list[Found] = []
    for each in segments:
        if each.kind == LOAD:
            inside = (entries >= each.address) & (entries < each.address + each.size - 16)
            at = entries[inside] - each.address + each.offset
            begins = entries[inside] + 8 + words[at + 8].astype(np.int32)
            lengths = words[at + 12].astype(np.int64)
            right = (begins == starts[inside]) & (lengths > 0)
            pairs = zip(begins[right].tolist(), lengths[right].tolist(), strict=True)
            found += [(start, start + length, "") for start, length in pairs]
    return found


def _addresses_made(data: bytes, segment: Segment, machine: int) -> Addresses:
    if machine == AARCH64:
        made = arm_addresses(arm_words(data, segment.offset, segment.size), segment.address)
        aligned: Addresses = made[made % 4 == 0]
        return aligned
    if machine == X86_64:
        return x86_addresses(np.frombuffer(data, np.uint8, segment.size, segment.offset), segment.address)
    return np.zeros(0, np.int64)


def relocated_to(data: bytes) -> list[Addresses]:
    """Return the addresses that the loader writes into tables."""
    found = []
    for each in _sections(data):
        if each.kind == _RELA:
            every = np.frombuffer(data, _RELOCATION, each.size // _RELOCATION.itemsize, each.offset)
            is_relative = every["type"] == _RELATIVE.get(machine_of(data), -1)
            found.append(every["addend"][is_relative].astype(np.int64))
    return found


def _gaps(code: Segment, known: list[Found]) -> list[tuple[int, int]]:
    """Return the ranges of `code` that no known function covers."""
    gaps, at, end = [], code.address, code.address + code.size
    for start, stop, _ in sorted(known):
        if start >= end:
            break
        if start > at:
            gaps.append((at, start))
        at = max(at, stop)
    return [*gaps, (at, end)] if at < end else gaps


def _begun_in(gap: tuple[int, int], taken: Addresses) -> list[Found]:
    """Return functions that begin in `gap`, at the `taken` addresses."""
    first, last = np.searchsorted(taken, gap)
    starts = taken[first:last].tolist()
    return [(start, end, "") for start, end in zip(starts, [*starts[1:], gap[1]], strict=False)]
