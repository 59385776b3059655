"""Frozen dataclasses to JSON and back: a record's fields are its file's format, in both directions.

Keys that a record does not name are ignored, so that newer files stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from model_profiling import files
from model_profiling.errors import FormatError
from model_profiling.reading import read_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Record = TypeVar("Record")
JsonObject = dict[str, object]


def read_json_object(path: Path, fix: str, *, follow: bool = False) -> JsonObject:
    """The object in `path`; `fix` is what to do about a damaged file, `follow` if the user named it."""
    content = read_json(path, follow=follow, fix=fix)
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a JSON object", fix)
    return content


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
        if first["type"] == "json_invalid":  # it was JSON to Python, which lets halves of characters pass
            said = "a text in it holds half a character"
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
