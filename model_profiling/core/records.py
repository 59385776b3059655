"""Frozen dataclasses to JSON and back, results of checks, and CSV that no spreadsheet runs as formulas."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.safe_read import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter


# Records: the fields of a dataclass are the file's format, for reading and writing. Keys that a record does
# not have are ignored, so that newer files stay readable.

Record = TypeVar("Record")
JsonObject = dict[str, object]


def read_json_object(path: Path, fix: str, *, follow: bool = False) -> JsonObject:
    """Return the object in `path`; `fix` is the advice for a damaged file, `follow` allows a link."""
    content = read_json(path, follow=follow, fix=fix)
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a JSON object", fix)
    return content


def read_record(
    kind: type[Record], path: Path, fix: str, upgrade: Callable[[JsonObject], JsonObject] | None = None
) -> Record:
    """Return the record in `path`; `upgrade` converts the content of older files."""
    content = read_json_object(path, fix)
    if upgrade is not None:
        content = upgrade(content)
    if "schema_version" not in content:
        raise FormatError(f"{path}: schema_version: required", fix)
    version_here = {field.name: field.default for field in dataclasses.fields(cast("Any", kind))}.get(
        "schema_version"
    )
    if version_here is not None and content["schema_version"] != version_here:
        version = json.dumps(content["schema_version"])
        raise FormatError(f"{path} has schema_version {version}, and this kit reads {version_here}", fix)
    return parse_record(kind, content, str(path), fix)


def parse_record(
    kind: type[Record], content: object, where: str, fix: str, text: bytes | None = None
) -> Record:
    """Return `content` as a record; raise an error that names the first field that does not fit. `text` is
    its JSON, if that is at hand."""
    from pydantic import ValidationError

    try:
        # Strict mode, through JSON: only there does a list become a tuple and a word an enum value.
        return cast("Record", _adapter(kind).validate_json(text or json.dumps(content), strict=True))
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "content"
        reason = first["msg"].removeprefix("Input ").removeprefix("Field ").lower()
        if first["type"] == "json_invalid":  # Python accepted it as JSON, with lone surrogates
            reason = "a text in it holds half a character"
        raise FormatError(f"{where}: {place}: {reason}", fix) from problem


def record_json(record: object) -> JsonObject:
    return cast("JsonObject", _adapter(type(record)).dump_python(record, mode="json"))


def write_record(path: Path, record: object) -> None:
    files.write_json(path, record_json(record))


_ADAPTERS: dict[object, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        # Imported here so that commands without records start quickly.
        from pydantic import TypeAdapter

        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


# Results of checks: of a machine, of a run, of a setup.

Status = Literal["pass", "fail", "optional", "skipped"]
"""`optional`: something is missing that only some work needs. `skipped`: not checkable, or not needed."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckList:
    checks: tuple[Check, ...]

    @property
    def failed(self) -> str:
        return ", ".join(dict.fromkeys(check.name for check in self.checks if check.status == "fail"))

    @property
    def ok(self) -> bool:
        return not self.failed

    def as_dict(self) -> dict[str, object]:
        return {"schema_version": 1, "ok": self.ok, **asdict(self)}


def check_unless(wrong: Sequence[str], name: str, found: str, fix: str) -> Check:
    """Return a passed check if `wrong` is empty, else a failed one with the first problem and its fix."""
    if not wrong:
        return Check(name, "pass", found)
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Check(name, "fail", f"{wrong[0]}{more}", fix)


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return one line per check, with the fix below each one that failed or is missing."""
    words = {"pass": "pass", "fail": "FAIL", "optional": "----", "skipped": "----"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{words[check.status]}  {check.name.ljust(width)}  {check.found}")
        if check.fix and check.status in ("fail", "optional"):
            lines.append(f"      {' ' * width}  fix: {check.fix}")
    return lines


# CSV that people open in a spreadsheet, which runs text that begins like a formula. Such text is written with
# an apostrophe in front and read back without it; numbers stay numbers. All CSV of the kit goes through here.

# A cell begins at the start of the text, and also after `;` or a tab (which separate cells in many countries)
# or a line end inside quotes (which some take for the end of a row).
_BEGINS = r"(?:^|(?<=[;\t\r\n]))"
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|inf|nan)(?:$|[;\t\r\n])"
# A single sign is not a formula. Spreadsheets accept full-width signs too.
_FORMULA = rf"(?!'* *{_NUMBER})(?='*(?: *[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])[^;])"
_RUN = re.compile(f"{_BEGINS}{_FORMULA}")
_KEPT = re.compile(f"{_BEGINS}'{_FORMULA}")


_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_LONGEST_ROW = 1 << 20


def safe_cell(text: str) -> str:
    return _RUN.sub("'", text)


def own_cell(cell: str) -> str:
    """Undo `safe_cell`."""
    return _KEPT.sub("", cell) if "'" in cell else cell


def csv_line(fields: Iterable[object]) -> str:
    """Return fields as a CSV line without its line end; NUL, which CSV cannot hold, is dropped."""
    line = io.StringIO()
    cells = (safe_cell(field.replace("\0", "")) if isinstance(field, str) else field for field in fields)
    # Python quotes a field with `\r` or `\n` only if these are in the line terminator.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[:-2]


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    return "".join(f"{csv_line(row)}\n" for row in rows)


def read_rows(text: str, where: object, fix: str) -> Iterator[list[str]]:
    """Yield the cells of each row, with `safe_cell` undone; `where` and `fix` are for errors."""
    taken = 0

    def lines() -> Iterator[str]:
        """Yield single lines, as a copy of a large text takes four times its size; limit a row's length."""
        nonlocal taken
        for line in _LINE.finditer(text):
            taken += len(line[0])
            if taken > _LONGEST_ROW:
                raise csv.Error(f"a row has more than {_LONGEST_ROW} characters")
            yield line[0].replace("\0", "")

    reader = csv.reader(lines())
    try:
        for row in reader:
            taken = 0
            yield list(map(own_cell, row))
    except csv.Error as problem:
        raise FormatError(f"{where}, line {reader.line_num} is no CSV: {problem}", fix) from problem


def read_table(text: str, where: object, fix: str) -> tuple[tuple[str, ...], Iterator[dict[str, str]]]:
    """Return the column names, and the rows as dictionaries; missing cells are empty, extra ones ignored."""
    rows = read_rows(text, where, fix)
    columns = tuple(next(rows, ()))
    return columns, (
        dict(zip(columns, row + [""] * (len(columns) - len(row)), strict=False)) for row in rows if row
    )
