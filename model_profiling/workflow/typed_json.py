"""JSON objects as frozen dataclasses, read by their annotations, for commands too quick to load pydantic.

Keys that a record does not name are ignored, so that newer files stay readable.
"""

from __future__ import annotations

import builtins
import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar, cast, get_args, get_origin, get_type_hints

from model_profiling.errors import FormatError, InputError

Record = TypeVar("Record")
Checked = TypeVar("Checked")

WORDS = "words"
"""In a field's metadata: words a file may use, and the values they stand for."""

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class _Mismatch(Exception):
    def __init__(self, place: tuple[str, ...], wanted: str) -> None:
        super().__init__(f"{'.'.join(place) or 'content'}: {wanted}")


def read_json_object(path: Path, cure: str) -> dict[str, object]:
    """The object in `path`; `cure` is what to do about a damaged file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot read {path}: {reason}", "correct the path") from problem
    except (ValueError, RecursionError) as problem:
        raise FormatError(f"{path} is not JSON: {problem}", cure) from problem
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a JSON object", cure)
    return content


def read_typed(kind: type[Record], path: Path, cure: str) -> Record:
    """The record in `path`; a field that does not fit is an error that names it."""
    content = read_json_object(path, cure)
    try:
        return cast("Record", _object(kind, content, ()))
    except _Mismatch as problem:
        raise FormatError(f"{path}: {problem}", cure) from problem


def _object(kind: type, value: object, place: tuple[str, ...]) -> object:
    members = _checked(dict, value, place, "an object")
    found = {}
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in members:
            words: Mapping[object, object] = field.metadata.get(WORDS, {})
            given = members[field.name]
            given = words.get(given, given) if isinstance(given, str) else given
            found[field.name] = _value(hints[field.name], given, (*place, field.name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Mismatch((*place, field.name), "is missing")
    return kind(**found)


@cache
def _hints(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


def _value(annotation: object, value: object, place: tuple[str, ...]) -> object:
    arguments = get_args(annotation)
    match get_origin(annotation):
        case typing.Union | types.UnionType:
            found = _one_of(arguments, value, place)
        case typing.Literal:
            found = _literal(arguments, value, place)
        case builtins.tuple:
            items = _checked(list, value, place, "a list")
            found = tuple(_value(arguments[0], one, (*place, str(at))) for at, one in enumerate(items))
        case builtins.dict:
            members = _checked(dict, value, place, "an object")
            found = {key: _value(arguments[1], one, (*place, key)) for key, one in members.items()}
        case _:
            found = _single(cast("type", annotation), value, place)
    return found


def _single(kind: type, value: object, place: tuple[str, ...]) -> object:
    if kind is object:
        return value
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, place)
    if kind is float and type(value) is int:
        return float(value)
    return _checked(kind, value, place, _NAMES.get(kind, kind.__name__))


def _literal(choices: tuple[object, ...], value: object, place: tuple[str, ...]) -> object:
    if value not in choices or isinstance(value, bool):
        raise _Mismatch(place, f"should be {' or '.join(map(repr, choices))}, not {value!r}")
    return value


def _checked(kind: type[Checked], value: object, place: tuple[str, ...], wanted: str) -> Checked:
    if type(value) is not kind:
        raise _Mismatch(place, f"should be {wanted}")
    return value


def _one_of(choices: tuple[object, ...], value: object, place: tuple[str, ...]) -> object:
    """A value or null; the complaint is about what the value should have been."""
    if value is None and type(None) in choices:
        return None
    wanted = [choice for choice in choices if choice is not type(None)]
    for choice in wanted[:-1]:
        try:
            return _value(choice, value, place)
        except _Mismatch:
            continue
    return _value(wanted[-1], value, place)
