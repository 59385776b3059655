"""Frozen dataclasses to JSON and back: a record's fields are its file's format, in both directions.

Keys that a record does not name are ignored, so that newer files stay readable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from model_profiling import files
from model_profiling.errors import FormatError, InputError, system_reason

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Record = TypeVar("Record")
JsonObject = dict[str, object]


def read_json_object(path: Path, fix: str) -> JsonObject:
    """The object in `path`; `fix` is what to do about a damaged file."""
    try:
        content = json.loads(path.read_bytes(), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except OSError as problem:
        reason = system_reason(problem)
        raise InputError(f"cannot read {path}: {reason}", "correct the path") from problem
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"{path} is not JSON: {problem}", fix) from problem
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a JSON object", fix)
    return content


def _whole(text: str) -> int:
    """A whole number that some counter could hold; with others, arithmetic ends in surprises."""
    if len(text) > 20:
        raise ValueError(f"{text[:20]}... is too large a number")
    return int(text)


def _finite(text: str) -> float:
    """NaN and infinities are not JSON, though Python reads them, and so large a number would be one."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is no number")
    return number


def read_record(
    kind: type[Record], path: Path, fix: str, upgrade: Callable[[JsonObject], JsonObject] | None = None
) -> Record:
    """The record in `path`; `upgrade` turns an older file's content into today's."""
    content = read_json_object(path, fix)
    if upgrade is not None:
        content = upgrade(content)
    if "schema_version" not in content:
        raise FormatError(f"{path}: schema_version: required", fix)
    return parse_record(kind, content, str(path), fix)


def parse_record(kind: type[Record], content: object, where: str, fix: str) -> Record:
    """`content` as a record; a field that does not fit is an error that names it."""
    from pydantic import ValidationError

    try:
        # Strict, and as JSON: only there is a list a tuple and a word an enumeration's value.
        return cast("Record", _adapter(kind).validate_json(json.dumps(content), strict=True))
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "content"
        said = first["msg"].removeprefix("Input ").removeprefix("Field ").lower()
        raise FormatError(f"{where}: {place}: {said}", fix) from problem


def record_json(record: object) -> JsonObject:
    """What `parse_record` reads back."""
    return cast("JsonObject", _adapter(type(record)).dump_python(record, mode="json"))


def write_record(path: Path, record: object) -> None:
    files.write_json(path, record_json(record))


_ADAPTERS: dict[object, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        # Imported here, because commands that meet no record are to start at once.
        from pydantic import TypeAdapter

        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
