"""Frozen dataclasses to JSON and back: a record's fields are its file's format, in both directions.

Keys that a record does not name are ignored, so that newer files stay readable.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

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


def parse_flat(kind: type[Record], content: JsonObject, where: str, fix: str) -> Record:
    """The same without pydantic, whose loading takes longer than a short command: for records of texts, whole
    numbers, flags, literals and tuples of such records."""
    given: dict[str, object] = {}
    for name, (wanted, required) in _fields(kind).items():
        if name in content:
            given[name] = _flat_value(wanted, content[name], f"{where}: {name}", fix)
        elif required:
            raise FormatError(f"{where}: {name}: required", fix)
    return kind(**given)


_FIELDS: dict[object, dict[str, tuple[Any, bool]]] = {}


def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Each field's type, and whether it has to be given."""
    if kind not in _FIELDS:
        hints, none = get_type_hints(kind), dataclasses.MISSING
        _FIELDS[kind] = {
            field.name: (hints[field.name], field.default is none and field.default_factory is none)
            for field in dataclasses.fields(kind)
        }
    return _FIELDS[kind]


def _flat_value(wanted: Any, value: object, where: str, fix: str) -> object:
    if get_origin(wanted) is Literal:
        allowed = get_args(wanted)
        if not any(type(value) is type(one) and value == one for one in allowed):
            raise FormatError(f"{where}: should be {' or '.join(map(repr, allowed))}", fix)
        return value
    if get_origin(wanted) is tuple:
        inside = get_args(wanted)[0]
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise FormatError(f"{where}: should be a list of objects", fix)
        return tuple(parse_flat(inside, one, f"{where}.{at}", fix) for at, one in enumerate(value))
    if type(value) is not wanted:
        raise FormatError(f"{where}: should be a valid {_WORDS[wanted]}", fix)
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value):
        raise FormatError(f"{where}: a text in it holds half a character", fix)
    return value


_WORDS = {str: "string", int: "integer", bool: "boolean"}


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
