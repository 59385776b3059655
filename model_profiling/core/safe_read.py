"""Safe reading of files that others wrote or changed: run directories, dumps and programs are mailed around.

Only regular files are opened, so nothing blocks and no device is read. Each kind of file has a size limit
that no honest one reaches. A path inside a file must stay in the folder that the user named. A file named on
the user's command line may be a link (`follow=True`); one found in a run directory may not.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from model_profiling.core.errors import FormatError, InputError, system_reason

MIB = 1 << 20
MOST_JSON = 64 * MIB
MOST_TEXT = 256 * MIB
"""For logs, CSV files and the like, which are read whole."""
MOST_LOG = 32 * MIB
"""For logs that are read line by line: each line takes some fifty bytes more."""
MOST_BINARY = 512 * MIB
"""For outputs and the like, which are read whole."""
MOST_MAPPED = 2048 * MIB
"""For dumps, which are mapped, not read: flatbuffers cannot address more."""
MOST_MEMORY = 600 * MIB
"""For the objects made of one JSON file; the largest real record takes 12 MiB."""
DEEPEST_JSON = 64
"""Nesting of lists and objects; the kit's own files have fewer than ten levels."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a disk"),
)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")


def open_regular(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open `path` for reading if it is a regular file; a link only with `follow`."""
    links = 0 if follow else os.O_NOFOLLOW
    try:
        _refuse_others(path, path.stat() if follow else path.lstat(), follow)
        # Do not follow or wait, in case it has just become a link or a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | links)
    except OSError as problem:
        raise InputError(f"cannot read {path}: {system_reason(problem)}", "correct the path") from problem
    except ValueError as problem:  # NUL, or lone surrogates, which no file name holds
        raise InputError(
            f"cannot read {str(path)!r}: no file has such a name", "correct the path"
        ) from problem
    return os.fdopen(handle, "rb")


def _refuse_others(path: Path, status: os.stat_result, named: bool = False) -> None:
    if kind := kind_of(status.st_mode):
        fix = "name a file" if named else "put the file itself there, or remove it"
        raise InputError(f"{path} is {kind}, not a regular file", fix)


def kind_of(mode: int) -> str:
    """Return the kind of a file; empty for a regular one."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "" if stat.S_ISREG(mode) else "no file")


def is_regular(path: Path, *, follow: bool = False) -> bool:
    """Whether `open_regular` would open it."""
    try:
        return stat.S_ISREG((path.stat() if follow else path.lstat()).st_mode)
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Whether anything has that name, even a broken link: what cannot be read must be reported."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def check_regular(path: Path) -> Path:
    """Return `path` if it is missing or a regular file."""
    if is_there(path):
        _refuse_others(path, path.lstat())
    return path


def read_bytes(path: Path, most: int = MOST_BINARY, *, follow: bool = False) -> bytes:
    """Return the content of `path`; refuse more than `most` bytes before reading them."""
    with open_regular(path, follow=follow) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            if size > most:
                raise too_large(path, most)
            # Kernel files report a size of 0, and others grow.
            content = stream.read(size)
            while len(content) <= most and (more := stream.read(MIB)):
                content += more
        except OSError as problem:
            raise InputError(f"cannot read {path}: {system_reason(problem)}", "check the disk") from problem
    if len(content) > most:
        raise too_large(path, most)
    return content


def too_large(path: Path, most: int) -> FormatError:
    return FormatError(f"{path} holds more than {_size(most)}: no such file is so large", "remove it")


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count} bytes"


def read_text(path: Path, most: int = MOST_TEXT, *, follow: bool = False, errors: str = "replace") -> str:
    """Return the UTF-8 text in `path` without a byte order mark; invalid bytes are replaced."""
    return read_bytes(path, most, follow=follow).decode("utf-8-sig", errors)


def read_json(path: Path, *, follow: bool = False, fix: str = "write the file again, or remove it") -> object:
    return parse_json(read_bytes(path, MOST_JSON, follow=follow), str(path), fix)


def parse_json(content: bytes | bytearray, where: str, fix: str, *, endless: bool = False) -> object:
    """Return `content` as JSON; refuse numbers too large for arithmetic and deep nesting. `endless` accepts
    infinities and NaN: a model may be full of them, and PyTorch writes them as they are."""
    constant = float if endless else _finite
    if _memory_of_json(content) > MOST_MEMORY:
        raise FormatError(f"{where} is refused: it would take more than {_size(MOST_MEMORY)} of memory", fix)
    try:
        text = content.decode("utf-8-sig")
        parsed: object = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=constant)
    except RecursionError as problem:
        raise FormatError(f"{where} is not JSON that can be read: nested too deeply", fix) from problem
    except ValueError as problem:
        raise FormatError(f"{where} is not JSON: {problem}", fix) from problem
    if is_too_deep(text):
        raise FormatError(f"{where} is not JSON that can be read: nested too deeply", fix)
    return parsed


def _memory_of_json(content: bytes | bytearray) -> int:
    """Return the most memory that Python needs for this JSON, estimated from its text: empty lists and small
    objects take up to 30 times their size, so the size alone is no bound."""
    opened, listed, parted = map(content.count, (b"{", b"[", b","))
    width = 2 if content.isascii() else 5  # bytes and text; one wide character makes the text 4 times larger
    return width * len(content) + 240 * opened + 72 * listed + 60 * parted


def _whole(text: str) -> int:
    """Parse an integer that some counter could hold; larger ones break arithmetic."""
    if len(text) > 20:
        raise ValueError(f"{text[:20]}... is too large a number")
    return int(text)


def _finite(text: str) -> float:
    """Refuse NaN and infinities, which Python reads though JSON has none, and numbers that overflow."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is no number")
    return number


def is_too_deep(text: str) -> bool:
    """Whether the JSON `text` is nested more deeply than `DEEPEST_JSON`."""
    if text.count("[") + text.count("{") <= DEEPEST_JSON:
        return False
    outside_strings = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    brackets = "".join(outside_strings).encode().translate(_ONE_KIND, _NO_BRACKETS)
    depth = 0
    while brackets and depth <= DEEPEST_JSON:
        brackets = brackets.replace(b"[]", b"")
        depth += 1
    return depth > DEEPEST_JSON


def inside(root: Path, name: str, where: str = "") -> Path:
    """Return the path of `name` below `root`; `name` comes from the file and field `where`. `root` may be
    reached through links; below it no link may lead out."""
    path = root / stays_inside(name, where)
    try:
        home, real = root.resolve(), path.resolve()
    except (OSError, RuntimeError, ValueError) as problem:  # links in a circle
        raise _leads_out(name, f"cannot be followed ({problem})", where) from problem
    if real != home and home not in real.parents:
        raise _leads_out(name, f"leads out of {root} through a link", where)
    return path


def stays_inside(name: str, where: str = "", *, folder: bool = False) -> str:
    """Return `name` if, as text, it is a path below some folder; `inside` checks links. Hidden folders hold
    nothing of a run, and are not searched for links that lead out."""
    if not name or "\0" in name:
        raise _leads_out(name, "names no file", where)
    parts = [part for part in name.split("/") if part not in ("", ".")]
    on_a_drive = (":" in name or "\\" in name) and PureWindowsPath(name).anchor
    if name.startswith("/") or on_a_drive or ".." in parts:
        raise _leads_out(name, "leads out of the run directory", where)
    if any(part.startswith(".") for part in (parts if folder else parts[:-1])):
        raise _leads_out(name, "leads into a hidden folder", where)
    return name


def _leads_out(name: str, problem: str, where: str) -> FormatError:
    fix = "a run names only files of its own; correct the entry, or measure again"
    return FormatError(f"{f'{where}: ' if where else ''}{name!r} {problem}", fix)
