"""What is wrong with a config, worded for the person who wrote it."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from model_profiling.config.settings import SYNONYMS, Experiment, ProfileConfig, shown


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the field's path, what about it, and what to do."""

    where: str
    what: str
    fix: str

    @property
    def text(self) -> str:
        return f"{self.where} {self.what}" if self.where else self.what

    def as_dict(self) -> dict[str, object]:
        return {"where": self.where, "what": self.what, "fix": self.fix}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?`, if anything known comes near."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def problems_of(error: ValidationError, raw: Mapping[str, object]) -> tuple[Problem, ...]:
    """Every problem pydantic found, in its order.

    A list whose entries are all wrong counts as empty to pydantic; the entries' own problems say it better.
    """
    found = error.errors(include_url=False)
    places = [details["loc"] for details in found]
    return tuple(
        _problem(details, raw)
        for details in found
        if details["type"] != "too_short" or not any(_below(place, details["loc"]) for place in places)
    )


def _below(place: tuple[int | str, ...], above: tuple[int | str, ...]) -> bool:
    return len(place) > len(above) and place[: len(above)] == above


def _problem(details: ErrorDetails, raw: Mapping[str, object]) -> Problem:
    location = _in_file(details["loc"], raw)
    where = _path(location)
    kind = details["type"]
    if kind == "extra_forbidden":
        return Problem(where, "is no setting", _known_key_cure(location))
    if kind == "missing":
        return Problem(where, "is missing", _addition(location))
    if kind == "kit":
        return Problem(where, details["msg"], str(details.get("ctx", {}).get("fix", "")))
    what, fix = _wording(kind, details)
    return Problem(where, what, fix)


def _in_file(location: tuple[int | str, ...], raw: Mapping[str, object]) -> tuple[int | str, ...]:
    """`location` in the words of the file: under the older name if that is what was written there."""
    words: list[int | str] = []
    here: object = raw
    for step in location:
        word = step
        if isinstance(here, Mapping) and step not in here:
            word = next((old for old, new in SYNONYMS.items() if new == step and old in here), step)
        words.append(word)
        if isinstance(here, Mapping):
            here = here.get(str(word))
        elif isinstance(here, list) and isinstance(step, int) and step < len(here):
            here = here[step]
    return tuple(words)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


_WORDINGS = {
    "string_type": ("text", "text in quotes"),
    "int_type": ("a whole number", "a whole number, such as 10"),
    "int_from_float": ("a whole number", "a whole number, such as 10"),
    "float_type": ("a number", "a number, such as 0.5"),
    "finite_number": ("a finite number", "a finite number"),
    "list_type": ("a list", "a list: [...]"),
    "tuple_type": ("a list", "a list: [...]"),
    "model_type": ("an object", "an object: { ... }"),
    "model_attributes_type": ("an object", "an object: { ... }"),
    "dict_type": ("an object", "an object: { ... }"),
}

_LIMITS = {
    "greater_than_equal": ("ge", "too small", "use {} or more"),
    "greater_than": ("gt", "too small", "use more than {}"),
    "less_than_equal": ("le", "too large", "use {} or less"),
    "less_than": ("lt", "too large", "use less than {}"),
}

_PATTERNS = {
    "name": "use letters, digits, '.', '_' and '-', beginning with a letter or digit",
    "remote": 'write host:port, such as "192.0.2.7:5555"',
    "device_path": 'write an absolute path without spaces, such as "/data/local/tmp/sme2prof"',
}


def _wording(kind: str, details: ErrorDetails) -> tuple[str, str]:
    value, context = details["input"], details.get("ctx", {})
    if kind in _WORDINGS:
        wanted, example = _WORDINGS[kind]
        return f"is {shown(value)}, not {wanted}", f"write {example}"
    if kind in _LIMITS:
        limit, complaint, cure = _LIMITS[kind]
        return f"is {shown(value)}, which is {complaint}", cure.format(f"{context[limit]:.10g}")
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", '"').replace(" or ", ", ")
        known = [choice.strip('"') for choice in choices.split(", ")]
        hint = nearest(value, known) if isinstance(value, str) else None
        return f"is {shown(value)}", f"choose from {choices}" + (f"; {hint}" if hint else "")
    if kind == "string_pattern_mismatch":
        last = next((str(step) for step in reversed(details["loc"]) if step in _PATTERNS), "name")
        return f"is {shown(value)}", _PATTERNS[last]
    lengths = {
        "string_too_long": ("is too long", f"use at most {context.get('max_length')} characters"),
        "string_too_short": ("is empty", "write something, or leave it out"),
        "too_short": ("is empty", "add at least one entry"),
    }
    return lengths.get(kind, (details["msg"].lower(), f"correct {_path(details['loc'])}"))


def _known_key_cure(location: tuple[int | str, ...]) -> str:
    """Where the key belongs, or the nearest one that is known here."""
    key, parents = str(location[-1]), tuple(step for step in location[:-1] if isinstance(step, str))
    here = _model_at(parents)
    known = [*here.model_fields, *(SYNONYMS if here is Experiment else ())]
    elsewhere = [where for where, fields in _all_fields() if key in fields]
    if elsewhere:
        return f"it belongs in {elsewhere[0]}"
    return nearest(key, known) or f"remove it; known here: {', '.join(known)}"


def _all_fields() -> list[tuple[str, set[str]]]:
    places: list[tuple[str, set[str]]] = [("the top level", set(ProfileConfig.model_fields))]
    for name in ("experiments", "schedule", "target", "analysis", "inputs"):
        fields = set(_model_at((name,)).model_fields)
        places.append((f"{name}[]" if name == "experiments" else name, fields))
    places[1][1].update(SYNONYMS)
    return places


def _model_at(parents: tuple[str, ...]) -> type[BaseModel]:
    model: type[BaseModel] = ProfileConfig
    for name in parents:
        model = _model_in(model.model_fields[name].annotation) or model
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if parts := typing.get_args(annotation):
        return next((found for part in parts if (found := _model_in(part))), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _addition(location: tuple[int | str, ...]) -> str:
    """How the missing setting is written."""
    key = str(location[-1])
    field = _model_at(tuple(step for step in location[:-1] if isinstance(step, str))).model_fields[key]
    example = field.examples[0] if field.examples else None
    if example is not None:
        return f'add "{key}": "{example}"'
    return f'add "{key}"' + (
        f": {field.description[0].lower()}{field.description[1:]}" if field.description else ""
    )
