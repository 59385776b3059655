"""64-bit little-endian ELF files, and what a program needs from its machine."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from model_profiling.core.errors import FormatError

AARCH64, X86_64 = 183, 62
LOAD = 1
_DYNAMIC, _INTERP = 2, 3
_NEEDED, _STRTAB, _STRSZ = 1, 5, 10
LONGEST_NAME = 4096


class Segment(NamedTuple):
    """A program header, in the order of its fields."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    in_memory: int
    alignment: int

    @property
    def executable(self) -> bool:
        return self.kind == LOAD and bool(self.flags & 1)


@dataclass(frozen=True, slots=True)
class Elf:
    """`interpreter` is None for a file that needs no loader."""

    machine: int
    interpreter: str | None
    needed: tuple[str, ...]


def read_elf(path: Path) -> Elf | None:
    """Return the facts of an ELF file; None if `path` is something else."""
    data = path.read_bytes()
    if not is_elf(data):
        return None
    try:
        return _needs(data)
    except (struct.error, ValueError, OverflowError) as problem:
        raise FormatError(f"{path} is a damaged program: {problem}", "build or install it again") from problem


def is_elf(data: bytes) -> bool:
    return data[:6] == b"\x7fELF\x02\x01"


def machine_of(data: bytes) -> int:
    return int.from_bytes(data[18:20], "little")


def segments_of(data: bytes) -> list[Segment]:
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    places = range(table, table + size * count, size) if size else ()
    return [Segment(*struct.unpack_from("<IIQQQQQQ", data, place)) for place in places]


def _needs(data: bytes) -> Elf:
    segments = segments_of(data)
    interpreter, needed = None, []
    for segment in segments:
        if segment.kind == _INTERP:
            interpreter = _name(data, segment.offset, segment.offset + segment.size)
        elif segment.kind == _DYNAMIC:
            places = range(segment.offset, segment.offset + segment.size // 16 * 16, 16)
            listed = (struct.unpack_from("<qQ", data, place) for place in places)
            entries = list(takewhile(lambda entry: entry[0] != 0, listed))
            tables = dict(entries)
            address = tables.get(_STRTAB, 0)
            loaded = (part for part in segments if part.kind == LOAD)
            home = next((part for part in loaded if part.address <= address < part.address + part.size), None)
            if home is None:
                raise ValueError("its string table is outside the file")
            start = address - home.address + home.offset
            end = start + tables.get(_STRSZ, 0)
            needed = [_name(data, start + value, end) for tag, value in entries if tag == _NEEDED]
    return Elf(machine_of(data), interpreter, tuple(needed))


def _name(data: bytes, start: int, end: int) -> str:
    stop = data.find(b"\0", start, min(end, start + LONGEST_NAME))
    if stop < 0:
        raise ValueError("a name in it has no end")
    return data[start:stop].decode("ascii")
