"""What is wrong with a config: pydantic's own message, the path in the file, and the nearest known key."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from model_profiling.compat.earlier_config import json_cure
from model_profiling.config.settings import shown
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.safe_read import MIB, read_text

_LARGEST = 4 * MIB
_WORDS = {
    r"^\w+ (?=should)": "it ",
    " after validation": "",
    "a valid tuple": "a list",
    r"a (valid )?dictionary( or (an )?instance of \w+)?": "an object",
}
"""Pydantic's words for what JSON calls otherwise."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the path of the field, what is wrong with it, and what to do."""

    where: str
    what: str
    fix: str

    @property
    def text(self) -> str:
        return f"{self.where} {self.what}" if self.where else self.what


class ConfigError(InputError):
    """A config with problems; the message has the first. `path` is the file, if there is one."""

    def __init__(self, problems: tuple[Problem, ...], path: Path | None = None) -> None:
        first, *others = problems
        more = f" ({len(others)} more: `sme2prof config check` lists all)" if others else ""
        super().__init__(f"{path}: {first.text}" if path else first.text, f"{first.fix}{more}")
        self.problems = problems


def problems_of(error: ValidationError, whole: type[BaseModel]) -> tuple[Problem, ...]:
    """The problems pydantic found in a `whole`, in its order. Pydantic also calls a list too short if all its
    entries are wrong; the entries' own problems say it better."""
    errors = error.errors(include_url=False)
    above = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    return tuple(
        _problem(details, whole)
        for details in errors
        if details["type"] != "too_short" or details["loc"] not in above
    )


def _problem(details: ErrorDetails, whole: type[BaseModel]) -> Problem:
    kind, context, location = details["type"], details.get("ctx", {}), details["loc"]
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
    keys = _fields_at(location[:-1], whole)
    field = keys.get(str(location[-1])) if location else None
    if kind == "kit":  # worded by `config/settings.py`
        return Problem(where, context["problem"], context["fix"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return Problem(
            where,
            "is not a known key",
            did_you_mean(str(location[-1]), keys) or f"remove it; known here: {', '.join(keys)}",
        )
    example = json.dumps(field.examples[0]) if field and field.examples else ""
    if kind == "missing":
        return Problem(where, "is missing", f'add "{location[-1]}": {example or "..."}')
    value = details["input"]
    message = details["msg"]
    for of_python, of_json in _WORDS.items():
        message = re.sub(of_python, of_json, message)
    choices = re.findall("'(.+?)'", message) if kind == "literal_error" else ()
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    more = f"; {hint}" if hint else f", such as {example}" if example and not choices else ""
    return Problem(where, f"is {shown(value)}", f"{message}{more}")


def _fields_at(location: Sequence[int | str], whole: type) -> Mapping[str, FieldInfo | None]:
    """The fields of the record at `location`; only pydantic's own have more than a name."""
    record = whole
    for name in location:
        parts = [typing.get_type_hints(record).get(str(name))]
        while parts:  # a number in a list, or a key of the user's own, leads to no other record
            part = parts.pop()
            parts += typing.get_args(part)
            if is_dataclass(part) or (isinstance(part, type) and issubclass(part, BaseModel)):
                record = typing.cast("type", part)
    if issubclass(record, BaseModel):
        return record.model_fields
    return dict.fromkeys(field.name for field in fields(typing.cast("typing.Any", record)))


def is_sweep(raw: Mapping[str, object]) -> bool:
    return "models" in raw and "experiments" not in raw


def read_object(path: Path, cure: str = "make one with `sme2prof config new`") -> dict[str, object]:
    """Read the JSON object in a file; `cure` says where such a file comes from."""
    if path.suffix == ".pte":
        raise InputError(f"{path} is a program, not a config", f"use `sme2prof profile {path}`")
    if not path.exists():
        raise InputError(f"there is no {path}", cure)
    try:
        text = read_text(path, _LARGEST, follow=True, errors="strict")
        parsed: object = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        problem = Problem(where, f"is not JSON: {error.msg.lower()}", json_cure(error))
    except (RecursionError, ValueError) as error:
        problem = Problem("", f"the file is not JSON: {error}", "correct it, and save it as UTF-8")
    else:
        if isinstance(parsed, dict):
            return parsed
        problem = Problem("", "the file holds no JSON object", cure)
    raise ConfigError((problem,), path)
