"""CSV text from numpy columns, formatted a column at a time: a 1,000-run timeline has a quarter million rows.

Rows are laid out in a byte matrix with one fixed-width field per column, unused bytes zero; dropping the
zeros leaves the text. Numbers are exact: fixed-point integers with the point put in, never floats.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int64 = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 14
# The text of every four-digit number, as one machine word each.
_FOUR_DIGITS = np.frombuffer("".join(f"{number:04d}" for number in range(10_000)).encode(), np.uint32)
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)
_COMMA, _MINUS, _POINT, _NEWLINE = (ord(mark) for mark in ",-.\n")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """`texts[codes[i]]` in row i; a text may hold several neighbouring fields (see `joined`)."""

    codes: Int64
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """`values[i]` in row i, its last `decimals` digits behind the point; empty where `empty` says so."""

    values: Int64
    decimals: int = 0
    empty: NDArray[np.bool_] | None = None


Column = TextColumn | NumberColumn


def joined(fields: Iterable[object]) -> str:
    """Fields as CSV writes them, quoted where they must be, without the line's end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def csv_bytes(header: Sequence[str], columns: Sequence[Column]) -> Iterator[bytes]:
    """The whole file in pieces: the header, then the rows."""
    yield (joined(header) + "\n").encode()
    tables = [_table(column.texts) if isinstance(column, TextColumn) else None for column in columns]
    rows = len(columns[0].codes if isinstance(columns[0], TextColumn) else columns[0].values)
    for begin in range(0, rows, _ROWS_AT_ONCE):
        part = slice(begin, begin + _ROWS_AT_ONCE)
        fields: list[Bytes] = []
        for column, table in zip(columns, tables, strict=True):
            if isinstance(column, TextColumn):
                assert table is not None
                fields.append(table[column.codes[part]])
            else:
                fields.append(_numbers(column, part))
            fields.append(np.full((len(fields[0]), 1), _COMMA, np.uint8))
        fields[-1][:] = _NEWLINE
        matrix = np.concatenate(fields, axis=1)
        yield matrix.tobytes().translate(None, b"\0")


def _table(texts: tuple[str, ...]) -> Bytes:
    encoded = [text.replace("\0", "").encode() for text in texts]
    table = np.zeros((len(encoded), max(map(len, encoded), default=0)), np.uint8)
    for row, text in enumerate(encoded):
        table[row, : len(text)] = np.frombuffer(text, np.uint8)
    return table


def _numbers(column: NumberColumn, part: slice) -> Bytes:
    values = column.values[part]
    size = np.abs(values)
    longest = max(int(size.max(initial=0)), 1)
    groups = max(-(-len(str(longest)) // 4), -(-(column.decimals + 1) // 4))
    words = np.empty((len(values), groups), np.uint32)
    rest = size
    for group in range(groups - 1, -1, -1):
        above = rest // 10_000
        words[:, group] = _FOUR_DIGITS[rest - above * 10_000]
        rest = above
    digits = words.view(np.uint8)
    shown = np.maximum(np.searchsorted(_POWERS, size, "right") + 1, column.decimals + 1)
    digits[np.arange(groups * 4) < groups * 4 - shown[:, None]] = 0
    sign = np.where(values < 0, _MINUS, 0).astype(np.uint8)[:, None]
    whole = groups * 4 - column.decimals
    pieces = [sign, digits[:, :whole]]
    if column.decimals:
        pieces += [np.full((len(values), 1), _POINT, np.uint8), digits[:, whole:]]
    text: Bytes = np.concatenate(pieces, axis=1)
    if column.empty is not None:
        text[column.empty[part]] = 0
    return text
