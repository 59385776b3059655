"""What is wrong with a config, worded for the person who wrote it."""

from __future__ import annotations

import codecs
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from model_profiling.config.settings import SYNONYMS, Experiment
from model_profiling.config.values import shown
from model_profiling.core.errors import InputError, system_reason
from model_profiling.core.files import is_stream
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.safe_read import is_too_deep, open_regular

Location = tuple[int | str, ...]
Parsed = typing.TypeVar("Parsed")

_MOST_PROBLEMS = 200
_MOST_NAMED = 5
"""In one line."""
_LONGEST_KEY = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the path of the field, what is wrong with it, and what to do."""

    where: str
    what: str
    fix: str

    @property
    def text(self) -> str:
        return f"{self.where} {self.what}" if self.where else self.what


def require(parsed: Parsed | None, problems: tuple[Problem, ...], path: Path | None = None) -> Parsed:
    """Return `parsed`, or raise InputError with its problems; `path` is the file, if there is one."""
    if parsed is not None and not problems:
        return parsed
    first, others = problems[0], problems[1:_MOST_NAMED]
    start = f"{path}: " if path else ""
    fix = [first.fix, *(f"({number}) {each.text}; {each.fix}" for number, each in enumerate(others, 2))]
    if len(problems) > _MOST_NAMED:
        fix.append("`sme2prof config check` lists all")
    count = f"{len(problems)} problems: (1) " if others else ""
    raise InputError(f"{start}{count}{first.text}", "; ".join(fix))


def problems_of(error: ValidationError, whole: type[BaseModel]) -> tuple[Problem, ...]:
    """The problems pydantic found in a `whole`, in its order, limited to about a page. Pydantic also calls a
    list empty if all its entries are wrong; the entries' own problems say it better."""
    found = error.errors(include_url=False)[:_MOST_PROBLEMS]
    inner = {details["loc"][:depth] for details in found for depth in range(len(details["loc"]))}
    return tuple(
        _problem(details, whole)
        for details in found
        if details["type"] != "too_short" or details["loc"] not in inner
    )


# Wordings for pydantic's error types: what is wrong with {value}, and what to write instead.
_WHOLE_NUMBER = ("is {value}, not a whole number", "write a whole number, such as 10")
_LIST = ("is {value}, not a list", "write a list: [...]")
_OBJECT = ("is {value}, not an object", "write an object: {{ ... }}")
_WORDINGS = {
    "string_type": ("is {value}, not text", "write text in quotes"),
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": ("is {value}, not a number", "write a number, such as 0.5"),
    "finite_number": ("is {value}, not a finite number", "write a finite number"),
    "bool_type": ("is {value}, not true or false", "write true or false"),
    "list_type": _LIST,
    "tuple_type": _LIST,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "dict_type": _OBJECT,
    "greater_than_equal": ("is {value}, which is too small", "use {ge:.10g} or more"),
    "greater_than": ("is {value}, which is too small", "use more than {gt:.10g}"),
    "less_than_equal": ("is {value}, which is too large", "use {le:.10g} or less"),
    "less_than": ("is {value}, which is too large", "use less than {lt:.10g}"),
    "string_too_long": ("is too long", "use at most {max_length} characters"),
    "string_too_short": ("is empty", "write something, or leave it out"),
    "too_short": ("is empty", "add at least one entry"),
    "too_long": ("has too many entries", "use at most {max_length}"),
    "kit": ("{problem}", "{fix}"),
}
_PATTERNS = {
    "remote": 'write host:port, such as "192.0.2.7:5555"',
    "device_path": 'write an absolute path without spaces, such as "/data/local/tmp/sme2prof"',
}
_NAME = "use letters, digits, '.', '_' and '-', beginning with a letter or digit"


def _problem(details: ErrorDetails, whole: type[BaseModel]) -> Problem:
    kind, location, value = details["type"], details["loc"], details["input"]
    where, context = _path(location), details.get("ctx", {})
    if kind == "extra_forbidden":
        key, here = str(location[-1]), _model_at(location[:-1], whole)
        if here is Experiment and (now := SYNONYMS.get(key)):
            return Problem(where, f"and {now} are both given and mean the same", f"keep {now}, drop {key}")
        return Problem(where, "is not a known key", _known_key_cure(location, whole))
    if kind == "missing":
        return Problem(where, "is missing", _addition(location, whole))
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", '"').replace(" or ", ", ")
        known = [choice.strip('"') for choice in choices.split(", ")]
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        return Problem(where, f"is {shown(value)}", f"choose from {choices}" + (f"; {hint}" if hint else ""))
    if kind == "string_pattern_mismatch":
        return Problem(where, f"is {shown(value)}", _PATTERNS.get(str(location[-1]), _NAME))
    what, fix = _WORDINGS.get(kind, (details["msg"].lower(), f"correct {where}"))
    return Problem(where, what.format(value=shown(value), **context), fix.format(**context))


def _short(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."


def _path(location: Location) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{_short(step)}" for step in location)
    return "".join(steps).removeprefix(".")


def _known_key_cure(location: Location, whole: type[BaseModel]) -> str:
    key, known = _short(str(location[-1])), _keys(_model_at(location[:-1], whole))
    if key in whole.model_fields:
        return "it belongs in the top level"
    for name, field in whole.model_fields.items():
        inner = _model_in(field.annotation)
        if inner is not None and key in _keys(inner):
            return f"it belongs in {name}{'[]' if typing.get_origin(field.annotation) is tuple else ''}"
    return did_you_mean(key, known) or f"remove it; known here: {', '.join(known)}"


def _keys(model: type[BaseModel]) -> list[str]:
    return [*model.model_fields, *(SYNONYMS if model is Experiment else ())]


def _model_at(location: Location, whole: type[BaseModel]) -> type[BaseModel]:
    model = whole
    for name in location:
        if name in model.model_fields:  # not a number in a list, or a key of the user's own
            model = _model_in(model.model_fields[name].annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if parts := typing.get_args(annotation):
        return next((found for part in parts if (found := _model_in(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _addition(location: Location, whole: type[BaseModel]) -> str:
    key = str(location[-1])
    field = _model_at(location[:-1], whole).model_fields[key]
    if field.examples:
        return f'add "{key}": {json.dumps(field.examples[0])}'
    meaning = field.description or ""
    return f'add "{key}": {meaning[:1].lower()}{meaning[1:]}'


_LARGEST = 4_000_000
_SWEEPS_OWN = frozenset({"models", "dtypes", "backends", "rungs", "targets", "exclude"})


def is_sweep(raw: Mapping[str, object]) -> bool:
    return "experiments" not in raw and "model" not in raw and bool(_SWEEPS_OWN & set(raw))


def read_object(path: Path, maker: str = "sme2prof config new") -> dict[str, object] | Problem:
    """Read the JSON object in a file; `maker` is the command that makes such a file."""
    if path.suffix == ".pte":
        raise InputError(f"{path} is a program, not a config", f"use `sme2prof profile {path}`")
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a config", "name the .json file in it")
    try:
        path.stat()
        with path.open("rb") if is_stream(path) else open_regular(path, follow=True) as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InputError(f"{path} is too large for a config", "name the right file")
    except FileNotFoundError as error:
        raise InputError(f"there is no {path}", f"make one with `{maker}`") from error
    except OSError as error:
        reason = system_reason(error)
        raise InputError(f"cannot read {path}: {reason}", "check the path and its permissions") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Problem("", "the file is UTF-16, JSON is UTF-8", "save it as UTF-8")
    try:
        # Windows editors often write a byte order mark, which has no meaning here.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return Problem(f"line {line}", f"byte {error.start} is not UTF-8", "save the file as UTF-8")
    return _parse(text, maker)


def _parse(text: str, maker: str) -> dict[str, object] | Problem:
    if not text.strip():
        return Problem("", "the file is empty", f"make one with `{maker}`")
    try:
        parsed: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
        if is_too_deep(text):
            raise RecursionError
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        return Problem(where, f"is not JSON: {error.msg.lower()}", _cure(text, error))
    except _Refused as error:
        return Problem(*error.args)
    except (RecursionError, ValueError):
        return Problem("", "the JSON is nested too deeply or holds a number too long", "simplify it")
    if not isinstance(parsed, dict):
        return Problem("", "the file holds no JSON object", 'write { "model": ..., "experiments": [...] }')
    return parsed


class _Refused(Exception):
    """JSON that Python accepts and the kit does not; its arguments are those of Problem."""


def _once(entries: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in entries:
        if key in made:
            raise _Refused(_short(key), "is given twice in one object", "keep one of the two")
        made[key] = value
    return made


def _no_constant(word: str) -> object:
    raise _Refused("", f"{word} is not a JSON number", "write a finite number")


def _cure(text: str, error: json.JSONDecodeError) -> str:
    before, after = text[: error.pos].rstrip(), text[error.pos :]
    cures = (
        (before.endswith(",") and after.lstrip().startswith(("}", "]")), "remove the comma before it"),
        (after.startswith((",}", ",]")) or "trailing comma" in error.msg, "remove the comma"),
        (after.startswith("'"), 'use double quotes (")'),
        (after.startswith(("//", "/*", "#")), 'JSON has no comments; use the setting "notes"'),
        (error.msg.startswith("Extra data"), "keep one JSON object in the file"),
        (not after.strip(), "close every bracket and quote"),
        ("delimiter" in error.msg, "add what is missing just before it"),
    )
    return next((cure for fits, cure in cures if fits), "correct the text there")
