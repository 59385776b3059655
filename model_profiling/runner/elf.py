"""What an ELF program or library asks of the machine it runs on: its loader and the libraries it names."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import FormatError

AARCH64, X86_64 = 183, 62
_LOAD, _DYNAMIC, _INTERP = 1, 2, 3
_NEEDED, _STRTAB, _STRSZ = 1, 5, 10
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Elf:
    """`interpreter` is None for what needs no loader."""

    machine: int
    interpreter: str | None
    needed: tuple[str, ...]


def read_elf(path: Path) -> Elf | None:
    """The facts of a 64-bit little-endian ELF file; None when `path` is something else."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    try:
        return _parse(data)
    except (struct.error, ValueError, OverflowError) as problem:
        raise FormatError(f"{path} is a damaged program: {problem}", "build or install it again") from problem


def _parse(data: bytes) -> Elf:
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, table + size * place) for place in range(count)]
    interpreter, needed = None, []
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == _INTERP:
            interpreter = _text(data, offset, offset + length)
        elif kind == _DYNAMIC:
            entries = list(_entries(data, offset, length))
            tables = dict(entries)
            start = _file_offset(segments, tables.get(_STRTAB, 0))
            end = start + tables.get(_STRSZ, 0)
            needed = [_text(data, start + value, end) for tag, value in entries if tag == _NEEDED]
    return Elf(machine, interpreter, tuple(needed))


def _entries(data: bytes, offset: int, length: int) -> list[tuple[int, int]]:
    found = [struct.unpack_from("<qQ", data, offset + 16 * place) for place in range(length // 16)]
    tags = [tag for tag, _ in found]
    return found[: tags.index(0)] if 0 in tags else found


def _file_offset(segments: list[tuple[int, ...]], address: int) -> int:
    for kind, _, offset, start, _, length, _, _ in segments:
        if kind == _LOAD and start <= address < start + length:
            return address - start + offset
    raise ValueError("its string table lies outside of it")


def _text(data: bytes, start: int, end: int) -> str:
    stop = data.find(b"\0", start, min(end, start + _LONGEST))
    if stop < 0:
        raise ValueError("a name in it has no end")
    return data[start:stop].decode("ascii")
