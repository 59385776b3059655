"""CSV text from numpy columns, formatted a column at a time: a 1,000-run timeline has a quarter million rows.

Rows are laid out in a byte matrix with one fixed-width field per column, unused bytes zero; dropping the
zeros leaves the text. Numbers are exact: fixed-point integers with the point put in, never floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model_profiling.csv_cells import csv_line

Bytes = NDArray[np.uint8]
Int64 = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 14
# The text of every four-digit number, as one machine word each.
_FOUR_DIGITS = np.frombuffer("".join(f"{number:04d}" for number in range(10_000)).encode(), np.uint32)
_COMMA, _MINUS, _POINT, _NEWLINE = (ord(mark) for mark in ",-.\n")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """`texts[codes[i]]` in row i; a text may hold several neighbouring fields (see `csv_line`)."""

    codes: Int64
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """`values[i]` in row i, its last `decimals` digits behind the point; empty where `empty` says so."""

    values: Int64
    decimals: int = 0
    empty: NDArray[np.bool_] | None = None


Column = TextColumn | NumberColumn


def csv_bytes(header: Sequence[str], columns: Sequence[Column]) -> Iterator[bytes]:
    """The whole file in pieces: the header, then the rows."""
    yield f"{csv_line(header)}\n".encode("utf-8", "backslashreplace")
    fields = [
        _TextField(column) if isinstance(column, TextColumn) else _NumberField(column) for column in columns
    ]
    rows = fields[0].rows
    sheet = np.zeros((min(rows, _ROWS_AT_ONCE), sum(field.width + 1 for field in fields)), np.uint8)
    places = []
    edge = 0
    for field in fields:
        places.append(sheet[:, edge : edge + field.width])
        edge += field.width + 1
        sheet[:, edge - 1] = _COMMA
    sheet[:, -1] = _NEWLINE
    for begin in range(0, rows, _ROWS_AT_ONCE):
        part = slice(begin, min(begin + _ROWS_AT_ONCE, rows))
        for field, place in zip(fields, places, strict=True):
            field.write(part, place[: part.stop - begin])
        yield sheet[: part.stop - begin].tobytes().translate(None, b"\0")


class _TextField:
    """Writes a text column: one row of a table of padded texts for each row."""

    def __init__(self, column: TextColumn) -> None:
        encoded = [text.encode("utf-8", "backslashreplace") for text in column.texts]
        self._codes = column.codes
        self._table = np.zeros((len(encoded), max(map(len, encoded), default=0)), np.uint8)
        for row, text in enumerate(encoded):
            self._table[row, : len(text)] = np.frombuffer(text, np.uint8)
        self.rows = len(column.codes)
        self.width = self._table.shape[1]

    def write(self, part: slice, place: Bytes) -> None:
        place[:] = self._table[self._codes[part]]


class _NumberField:
    """Writes a number column: a sign where any number has one, then digits, with the point among them."""

    def __init__(self, column: NumberColumn) -> None:
        self._values, self._decimals, self._empty = column.values, column.decimals, column.empty
        least, most = int(column.values.min(initial=0)), int(column.values.max(initial=0))
        self._digits = max(len(str(max(most, -least))), column.decimals + 1)
        self._signed = least < 0
        self.rows = len(column.values)
        self.width = self._digits + self._signed + (column.decimals > 0)

    def write(self, part: slice, place: Bytes) -> None:
        values = self._values[part]
        size = np.abs(values) if self._signed else values
        digits = self._digits_of(size)
        if self._signed:
            place[:, 0] = np.where(values < 0, _MINUS, 0)
        whole = self._digits - self._decimals
        first = int(self._signed)
        place[:, first : first + whole] = digits[:, :whole]
        if self._decimals:
            place[:, first + whole] = _POINT
            place[:, first + whole + 1 :] = digits[:, whole:]
        if self._empty is not None:
            place[self._empty[part]] = 0

    def _digits_of(self, size: Int64) -> Bytes:
        groups = -(-self._digits // 4)
        words = np.empty((len(size), groups), np.uint32)
        rest = size
        for group in range(groups - 1, -1, -1):
            above = rest // 10_000
            words[:, group] = _FOUR_DIGITS[rest - above * 10_000]
            rest = above
        digits = words.view(np.uint8)[:, groups * 4 - self._digits :]
        # A leading zero is no digit; the one before the point is.
        for place in range(self._digits - self._decimals - 1):
            digits[:, place] *= size >= 10 ** (self._digits - 1 - place)
        return digits
