"""CSV that people open in a spreadsheet: a name that begins like a formula would be run there.

Such a text is written behind an apostrophe, and read back without it; numbers stay numbers. Whatever of the
kit writes or reads CSV does so here.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

from model_profiling.errors import FormatError

# A cell begins with the text; inside of it too, where `;` or a tab parts cells (as in many countries), or a
# quoted line's end is taken for a row's.
_BEGINS = r"(?:^|(?<=[;\t\r\n]))"
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|inf|nan)(?:$|[;\t\r\n])"
# A single sign is no formula. Full-width signs are signs to a spreadsheet.
_FORMULA = rf"(?!'* *{_NUMBER})(?='*(?: *[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])[^;])"
_RUN = re.compile(f"{_BEGINS}{_FORMULA}")
_KEPT = re.compile(f"{_BEGINS}'{_FORMULA}")


_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_LONGEST_ROW = 1 << 20


def safe_cell(text: str) -> str:
    """`text` so that no spreadsheet runs it."""
    return _RUN.sub("'", text)


def own_cell(cell: str) -> str:
    """The text that was made safe."""
    return _KEPT.sub("", cell) if "'" in cell else cell


def csv_line(fields: Iterable[object]) -> str:
    """Fields as CSV holds them, without the line's end; it cannot hold NUL."""
    line = io.StringIO()
    cells = (safe_cell(field.replace("\0", "")) if isinstance(field, str) else field for field in fields)
    # Only the characters of the line's end make Python quote a field that holds them.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[:-2]


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """A whole file."""
    return "".join(f"{csv_line(row)}\n" for row in rows)


def read_rows(text: str, where: object, fix: str) -> Iterator[list[str]]:
    """The cells of each row, as they were before they were made safe; `where` and `fix` are for errors."""
    taken = 0

    def lines() -> Iterator[str]:
        """One by one, as a copy of a large text takes four times its size; a row has an end."""
        nonlocal taken
        for found in _LINE.finditer(text):
            taken += len(found[0])
            if taken > _LONGEST_ROW:
                raise csv.Error(f"a row has more than {_LONGEST_ROW} characters")
            yield found[0].replace("\0", "")

    reader = csv.reader(lines())
    try:
        for row in reader:
            taken = 0
            yield list(map(own_cell, row))
    except csv.Error as problem:
        raise FormatError(f"{where}, line {reader.line_num} is no CSV: {problem}", fix) from problem


def read_table(text: str, where: object, fix: str) -> tuple[tuple[str, ...], Iterator[dict[str, str]]]:
    """The names of the columns, and the rows by them; what a row lacks is empty, what it has more is left."""
    rows = read_rows(text, where, fix)
    columns = tuple(next(rows, ()))
    return columns, (
        dict(zip(columns, row + [""] * (len(columns) - len(row)), strict=False)) for row in rows if row
    )
