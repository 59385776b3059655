"""The text of a config file: bytes to characters to one JSON object, with errors a person can act on."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config.problems import Problem
from model_profiling.errors import InputError, system_reason

_LARGEST = 4_000_000
_SWEEPS_OWN = frozenset({"models", "dtypes", "backends", "rungs", "targets", "exclude"})


def is_sweep(raw: Mapping[str, object]) -> bool:
    """Whether a JSON object is meant as a sweep, not as a config."""
    return "experiments" not in raw and "model" not in raw and bool(_SWEEPS_OWN & set(raw))


def read_object(path: Path, maker: str = "sme2prof config new") -> dict[str, object] | Problem:
    """The JSON object in the file; a file that cannot be opened at all raises InputError. `maker` is the
    command that makes one."""
    if path.suffix == ".pte":
        raise InputError(f"{path} is a program, not a config", f"use `sme2prof profile {path}`")
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a config", "name the .json file in it")
    try:
        with path.open("rb") as stream:  # a pipe will do, whatever the shell makes one of
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
        # Editors on Windows like to start a file with a byte order mark; it carries no meaning.
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
    except _Refused as error:
        return error.problem
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        return Problem(where, f"is not JSON: {error.msg.lower()}", _cure(text, error))
    except (RecursionError, ValueError):
        return Problem("", "the JSON is nested too deeply or holds a number too long", "simplify it")
    if not isinstance(parsed, dict):
        return Problem("", "the file holds no JSON object", 'write { "model": ..., "experiments": [...] }')
    return parsed


@dataclass
class _Refused(Exception):
    problem: Problem


def _once(entries: list[tuple[str, object]]) -> dict[str, object]:
    made: dict[str, object] = {}
    for key, value in entries:
        if key in made:
            raise _Refused(Problem(key[:80], "is given twice in one object", "keep one of the two"))
        made[key] = value
    return made


def _no_constant(word: str) -> object:
    raise _Refused(Problem("", f"{word} is not a JSON number", "write a finite number"))


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
