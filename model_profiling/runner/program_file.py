"""A first look at a `.pte`: is it one, is it whole, and is it of a kind this ExecuTorch reads."""

from __future__ import annotations

from pathlib import Path

from model_profiling.errors import FormatError, InputError

_IDENTIFIER = b"ET12"
_EXTENDED = b"eh00"


def check_program(path: Path) -> None:
    """Raise when `path` cannot be an ExecuTorch program; what lies inside is the runtime's to judge."""
    if not path.is_file():
        raise InputError(f"there is no program {path}", "export one with: sme2prof export MODEL --dtype fp32")
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(64)
    again = "export it again"
    if len(head) < 8:
        raise FormatError(f"{path} is cut short: {size} bytes", again)
    identifier = head[4:8]
    if identifier != _IDENTIFIER:
        if identifier[:2] == b"ET" and identifier[2:].isdigit():
            name = identifier.decode()
            raise FormatError(
                f"{path} is of another ExecuTorch version: its format is {name}, this one reads ET12",
                "export it again with the installed ExecuTorch",
            )
        raise FormatError(f"{path} is not an ExecuTorch program: byte 4 should begin ET12", again)
    if head[8:12] != _EXTENDED:
        return
    # The header gives the size of the program and, since segments exist, where they begin and end.
    length = int.from_bytes(head[12:16], "little")
    program_size = int.from_bytes(head[16:24], "little")
    segments_at = int.from_bytes(head[24:32], "little")
    segments_size = int.from_bytes(head[32:40], "little") if length >= 32 else 0
    expected = max(program_size, segments_at + segments_size if segments_at else 0)
    if size < expected:
        raise FormatError(f"{path} is cut short: {size} of {expected} bytes", again)
