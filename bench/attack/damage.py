"""Damage by kind of file: each knows where offsets, lengths, members, fields or numbers are, and spoils them.

The same bytes and the same `random.Random` give the same damage. What is damaged may be damaged again.
"""

from __future__ import annotations

import copy
import io
import json
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from model_profiling.core.safe_read import is_too_deep

Kind = Literal["bytes", "zip", "json", "lines", "text", "named", "placed"]

LONGEST = 400_000
"""No damage makes a file longer: what grows without end says nothing about a reader."""
_WORDS = (0, 1, 2, 3, 4, 7, 8, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF)
_LONGS = (0, 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    "",
    "\0",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "../../../../../etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "=1+1",
    "<img src=x onerror=alert(1)>",
    "nan",
    "-inf",
    "1e999",
    "9" * 400,
    "x" * 5000,
    "a/" * 200,
    "forward",
    "true",
)
_NUMBERS = (
    *(0, 1, -1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**19, 10**30, 10**400),
    *(0.1, -0.0, 1e-320, 1e30, 1e308, float("nan"), float("inf"), -float("inf")),
)
_NUMBER_TEXTS = ("0", "-1", "1.2.3", "0.0", "1e400", "nan", "9" * 30, "9" * 400, "0x10", "٣", "1_000", "")
_RAW = {f"@{deep} lists@": "[" * deep + "]" * deep for deep in (70, 900, 3000)}
_RAW |= {f"@{deep} objects@": '{"a":' * deep + "1" + "}" * deep for deep in (70, 900, 3000)}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def damaged(kind: Kind, data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """`data` after one to a few accidents of its kind; `others` are files to splice with."""
    made = _BY_KIND[kind](data, others, chance)
    # Every format also meets damage that knows nothing of it.
    if kind not in ("bytes", "named", "placed") and chance.random() < 0.15:
        made = _bytes(made, others, chance)
    return made[:LONGEST]


def _bytes(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    spoilt = bytearray(data)
    references, lengths = _places(data) if len(data) < 1_000_000 else ((), ())
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4, 16))):
        if len(spoilt) < 8:
            break
        at = chance.randrange(min(len(spoilt), 512) if chance.random() < 0.4 else len(spoilt))
        accident = chance.randrange(10)
        if accident <= 3:
            at = _one_of(references if accident < 2 else lengths, at, chance) & ~3
            _put(spoilt, at, _word(spoilt, at, chance))
        elif accident == 4:
            _put(spoilt, at & ~7, struct.pack("<Q", chance.choice(_LONGS)))
        elif accident == 5:
            spoilt[at] ^= 1 << chance.randrange(8)
        elif accident == 6:
            spoilt[at] = chance.randrange(256)
        elif accident == 7:
            _resize(spoilt, at, chance)
        elif accident == 8:
            source = chance.randrange(len(spoilt))
            length = chance.randrange(1, 256)
            spoilt[at : at + length] = spoilt[source : source + length]
        else:
            other = others[chance.randrange(len(others))]
            spoilt[at:] = other[chance.randrange(len(other) + 1) :]
    return bytes(spoilt)


def _one_of(known: Sequence[int], otherwise: int, chance: random.Random) -> int:
    return known[chance.randrange(len(known))] if known and chance.random() < 0.8 else otherwise


def _resize(spoilt: bytearray, at: int, chance: random.Random) -> None:
    length = 1 << chance.randrange(9)
    how = chance.randrange(3)
    if how == 0:
        del spoilt[at:]
    elif how == 1:
        del spoilt[at : at + length]
    else:
        spoilt[at:at] = bytes(chance.randrange(256) for _ in range(length))


def _put(spoilt: bytearray, at: int, value: bytes) -> None:
    if 0 <= at <= len(spoilt) - len(value):
        spoilt[at : at + len(value)] = value


def _word(spoilt: bytearray, at: int, chance: random.Random) -> bytes:
    now = int.from_bytes(spoilt[at : at + 4], "little")
    number = chance.choice(
        (
            chance.choice(_WORDS),
            now + chance.choice((-8, -4, -2, -1, 1, 2, 4, 8)),
            len(spoilt) - at + chance.choice((-8, -4, 0, 4)),
            -at,
            chance.randrange(2**32),
            now << 8,
        )
    )
    return struct.pack("<I", number % 2**32)


@lru_cache(maxsize=256)
def _places(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Where numbers lie that may be references inside the file, and where counts of what follows them."""
    words = np.frombuffer(data[: len(data) & ~3], "<u4").astype(np.int64)
    at = np.arange(len(words)) * 4
    signed = words.astype(np.uint32).view(np.int32).astype(np.int64)
    refers = ((words > 3) & (at + words < len(data))) | ((signed < 0) & (at - signed < len(data)))
    counts = (words > 0) & (words < 4096) & (at + 4 + words <= len(data))
    return tuple(at[refers][:4000].tolist()), tuple(at[counts][:4000].tolist())


def _json(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    parsed = _parsed(data)
    if not _keys(parsed):
        return _text(data, others, chance)
    undo: list[Callable[[], None]] = []
    try:
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _spoil_tree(parsed, others, chance, undo)
        text = json.dumps(parsed)
    finally:
        for back in reversed(undo):
            back()
    for mark, raw in _RAW.items():
        text = text.replace(f'"{mark}"', raw)
    if chance.random() < 0.05:
        at = text.find('"')
        text = text[:at] + '"twice": 1, "twice": 2, ' + text[at:]
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=512)
def _parsed(data: bytes) -> Any:
    try:
        # What is too deep for the kit is so for whoever copies it.
        return None if is_too_deep(data.decode("utf-8", "replace")) else json.loads(data)
    except ValueError:
        return None


def _spoil_tree(
    root: Any, others: Sequence[bytes], chance: random.Random, undo: list[Callable[[], None]]
) -> None:
    """Change one place under `root`; `undo` learns how to change it back."""
    parent, keys = root, _keys(root)
    while keys:
        key = keys[chance.randrange(len(keys))]
        below = _keys(parent[key])
        if not below or chance.random() < 0.15:
            _spoil_entry(parent, key, others, chance, undo)
            return
        parent, keys = parent[key], below


def _keys(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()


def _spoil_entry(
    parent: Any, key: Any, others: Sequence[bytes], chance: random.Random, undo: list[Callable[[], None]]
) -> None:
    before = parent.copy()

    def back() -> None:
        parent.clear()
        (parent.update if isinstance(parent, dict) else parent.extend)(before)

    undo.append(back)
    accident = chance.randrange(9)
    if accident == 0:
        del parent[key]
    elif accident == 1 and isinstance(parent, list):
        parent.extend([parent[key]] * chance.choice((1, 2, 50, 1000)))
    elif accident == 2:
        donor = _parsed(others[chance.randrange(len(others))])
        parent[key] = _somewhere(donor, chance)
    elif accident == 3:
        parent[key] = chance.choice(tuple(_RAW))
    elif accident == 4:
        parent[key] = chance.choice((None, True, False, [], {}, [[]], {"": None}, [None]))
    elif accident == 5:
        parent[key] = chance.choice(_TEXTS)
    elif accident == 6 and isinstance(parent[key], str):
        parent[key] = parent[key] + chance.choice(_TEXTS) if chance.random() < 0.5 else parent[key][::-1]
    else:
        number = chance.choice(_NUMBERS)
        old = parent[key]
        if isinstance(old, int | float) and abs(old) < 1e100 and chance.random() < 0.5:
            number = chance.choice((-old, old * 1000, old + 1, float(old) / 3, str(old)))
        parent[key] = number


def _somewhere(value: Any, chance: random.Random) -> Any:
    """Some part of a parsed file."""
    while (keys := _keys(value)) and chance.random() < 0.7:
        value = value[keys[chance.randrange(len(keys))]]
    return copy.deepcopy(value)  # it may be put inside of itself


def _lines(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Files with a JSON object on every line."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    if chance.random() < 0.7:
        lines[at] = _json(lines[at], [other.split(b"\n")[0] for other in others], chance)
    else:
        _spoil_lines(lines, chance)
    return b"\n".join(lines)


def _spoil_lines(lines: list[bytes], chance: random.Random) -> None:
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    accident = chance.randrange(4)
    if accident == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif accident == 1:
        del lines[at]
    elif accident == 2:
        lines.insert(at, lines[other])
    else:
        lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]


def _text(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Logs and tables: lines, numbers, separators, quotes, characters that are no text."""
    del others
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        accident = chance.randrange(6)
        at = chance.randrange(len(text) + 1)
        if accident <= 1:
            # Only near the place: to look for all numbers of a long file takes longer than to read it.
            number = _NUMBER.search(text, at, at + 200)
            if number:
                text = text[: number.start()] + chance.choice(_NUMBER_TEXTS) + text[number.end() :]
        elif accident == 2:
            text = text[:at] + chance.choice((*_TEXTS, '"', ",", "\n", "\r", ";", "'", "\udcff")) + text[at:]
        elif accident == 3:
            lines = text.encode("utf-8", "surrogatepass").split(b"\n")
            _spoil_lines(lines, chance)
            text = b"\n".join(lines).decode("utf-8", "replace")
        elif accident == 4:
            text = text[:at] + text[at + chance.choice((1, 2, 10, 200)) :]
        else:
            text = text[:at]
    return (
        text.encode("utf-8", "surrogateescape") if "\ud800" not in text else text.encode("utf-8", "replace")
    )


def _zip(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Either the archive's own bytes, or what is in it, packed again."""
    members = _members(data)
    if not members or chance.random() < 0.35:
        return _bytes(data, others, chance)
    made = dict(members)
    name = chance.choice(tuple(made))
    accident = chance.randrange(8)
    if accident <= 4:
        made[name] = _json(made[name], [content for _, content in members], chance)
    elif accident == 5:
        made[chance.choice(_TEXTS).replace("\ud800", "?") or "x"] = made.pop(name)
    elif accident == 6:
        made[f"{name}.more"] = bytes(chance.choice((0, 1000, 2_000_000)))
    else:
        del made[name]
    return _packed(made, twice=name if chance.random() < 0.1 else "", chance=chance)


@lru_cache(maxsize=256)
def _members(data: bytes) -> tuple[tuple[str, bytes], ...]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            whole = [info for info in archive.infolist() if info.file_size < LONGEST * 10]
            return tuple((info.filename, archive.read(info)) for info in whole)
    except Exception:  # noqa: BLE001  # whatever a damaged archive makes a decompressor say
        return ()


def _packed(members: dict[str, bytes], twice: str, chance: random.Random) -> bytes:
    stream = io.BytesIO()
    how = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", how, compresslevel=1) as archive:
        warnings.simplefilter("ignore")  # names that are there twice
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=how)
        if twice in members:
            archive.writestr(zipfile.ZipInfo(twice), members[twice][::-1])
    return stream.getvalue()


def _named(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """A file of a run behind its name, which says of what kind it is."""
    name, _, content = data.partition(b"\0")
    kind = _ENDINGS.get(name.rpartition(b".")[2], "bytes")
    alike = [other.partition(b"\0")[2] for other in others if other.partition(b"\0")[0] == name]
    return name + b"\0" + _BY_KIND[kind](content, alike, chance)


_PIECES = (
    *(
        "..",
        "/",
        "%2F",
        "%2f",
        "%252F",
        "%5C",
        "\\",
        "@",
        "%@",
        "settings.json",
        "~",
        "$HOME",
        "`id`",
        "$(id)",
    ),
    *(
        "\n",
        "\r",
        "\t",
        "\x1b[2J",
        "\x7f",
        "\u202e",
        "\u2028",
        "\udcff",
        " ",
        "-",
        "--out=",
        "'",
        '"',
        "|",
        "*",
        "{}",
    ),
    *(
        "%s",
        "%n",
        "CON",
        "NUL",
        "a" * 120,
        "\u00e9" * 60,
        ".",
        ".part",
        ".json",
        ".etdump",
        ".log",
        "report",
        "_t1",
    ),
)


def _placed(data: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """Words that name a kind of file, a place and a command, each from another row, and a hostile name."""
    rows = [chance.choice(others).split(b"\0") for _ in data.split(b"\0")]
    words = [row[place] for place, row in enumerate(rows)]
    name = "".join(chance.choice(_PIECES) for _ in range(chance.choice((1, 2, 4, 8, 12))))
    return b"\0".join((*words[:-1], name.encode("utf-8", "surrogateescape")))


_ENDINGS: dict[bytes, Kind] = {b"json": "json", b"jsonl": "lines", b"csv": "text", b"log": "text"}
_BY_KIND: dict[Kind, Callable[[bytes, Sequence[bytes], random.Random], bytes]] = {
    "bytes": _bytes,
    "zip": _zip,
    "json": _json,
    "lines": _lines,
    "text": _text,
    "named": _named,
    "placed": _placed,
}
