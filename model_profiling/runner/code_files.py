"""Reads the functions of a library, ELF or Mach-O. A Mach-O file for Arm lists where each one begins
(LC_FUNCTION_STARTS), and has symbols there."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model_profiling.core.errors import FormatError, system_reason
from model_profiling.runner.elf_functions import parse_elf
from model_profiling.runner.functions import CodeFunctions, Extents, arm_words

_MAGIC, _FAT_MAGIC = 0xFEEDFACF, 0xCAFEBABE
_ARM64 = 0x0100000C
_SYMTAB, _SEGMENT_64, _UUID, _FUNCTION_STARTS = 0x2, 0x19, 0x1B, 0x26
_DEBUGGING, _KIND, _IN_SECTION = 0xE0, 0x0E, 0x0E
_SYMBOL = np.dtype([("name", "<u4"), ("type", "u1"), ("section", "u1"), ("more", "<u2"), ("value", "<u8")])
_MOST_COMMANDS = 10_000
_LONGEST_NAME = 4096


@dataclass(slots=True)
class _Commands:
    """The content of the load commands; addresses are those in the file."""

    uuid: str | None = None
    text_address: int = 0
    code_end: int = 0
    starts: tuple[int, int] | None = None
    symbols: tuple[int, int, int, int] | None = None


def parse_macho(data: bytes) -> CodeFunctions:
    """Return the functions, relative to the header; raise `struct.error` or `ValueError` if damaged."""
    data = _arm_part(data)
    commands = _read_commands(data)
    starts = _function_starts(data, commands)
    names = _names(data, commands)
    ends = [*starts[1:], commands.code_end - commands.text_address]
    found = [
        (start, end, names.get(start, "")) for start, end in zip(starts, ends, strict=True) if end > start
    ]
    named = Extents.of([each for each in found if each[2]])
    unnamed = Extents.of([(start, end, "") for start, end, _ in found])
    # The header begins both the file and the loaded image, and the code follows it.
    code = arm_words(data, 0, min(commands.code_end - commands.text_address, len(data)))
    return CodeFunctions(commands.uuid, named, unnamed, ((0, code),))


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


def _read_commands(data: bytes) -> _Commands:
    (count,) = struct.unpack_from("<I", data, 16)
    if count > _MOST_COMMANDS:
        raise ValueError("it has too many load commands")
    found, at = _Commands(), 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, at)
        if size < 8:
            raise ValueError("a load command has no length")
        if kind == _UUID:
            found.uuid = data[at + 8 : at + 24].hex()
        elif kind == _FUNCTION_STARTS:
            offset, length = struct.unpack_from("<II", data, at + 8)
            found.starts = offset, length
        elif kind == _SYMTAB:
            symbols, number, strings, length = struct.unpack_from("<IIII", data, at + 8)
            found.symbols = symbols, number, strings, length
        elif kind == _SEGMENT_64 and data[at + 8 : at + 24].rstrip(b"\0") == b"__TEXT":
            (found.text_address,) = struct.unpack_from("<Q", data, at + 24)
            found.code_end = _end_of_code(data, at)
        at += size
    return found


def _end_of_code(data: bytes, segment: int) -> int:
    (count,) = struct.unpack_from("<I", data, segment + 64)
    for place in range(min(count, 255)):
        section = segment + 72 + 80 * place
        if data[section : section + 16].rstrip(b"\0") == b"__text":
            address, size = struct.unpack_from("<QQ", data, section + 32)
            return int(address + size)
    raise ValueError("it has no code")


def _function_starts(data: bytes, commands: _Commands) -> list[int]:
    """Decode the distances between functions, seven bits per byte; a distance of 0 ends the list."""
    if commands.starts is None:
        return []
    offset, size = commands.starts
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
                raise ValueError("a function lies outside of it")
            starts.append(address)
            distance = shift = 0
    return starts


def _names(data: bytes, commands: _Commands) -> dict[int, str]:
    if commands.symbols is None:
        return {}
    offset, count, strings, length = commands.symbols
    text = data[strings : strings + length]
    every = np.frombuffer(data, _SYMBOL, count, offset)
    chosen = every[(every["type"] & _DEBUGGING == 0) & (every["type"] & _KIND == _IN_SECTION)]
    found: dict[int, str] = {}
    for name, value in zip(chosen["name"].tolist(), chosen["value"].tolist(), strict=True):
        stop = text.find(b"\0", name, name + _LONGEST_NAME)
        if stop > name:
            # Mach-O puts an underscore before C names.
            found.setdefault(value - commands.text_address, text[name:stop].decode("utf-8", "replace")[1:])
    return found


MOST_BYTES = 2 << 30


def read_functions(path: Path) -> CodeFunctions:
    """Read an ELF file (64-bit, little-endian) or a Mach-O file for Arm."""
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
