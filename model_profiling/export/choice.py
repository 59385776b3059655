"""Which rewrites `--optimize` applies: what `sme2prof optimize` kept, or what helps by structure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.records import read_record

OPTIMIZATION = "optimization.json"
Optimize = bool | StrPath | tuple[str, ...]
"""Nothing (False), what is usual (True), a saved choice (its file, or the folder of it), or names."""
_AGAIN = "run `sme2prof optimize` again, or give --optimize without a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChoice:
    """What is read of `optimization.json` to apply it again."""

    schema_version: Literal[1] = 1
    model: str
    source: str
    kept: tuple[str, ...]

    def is_for(self, model: str, source: str) -> bool:
        return self.model == model or self.source == source


def chosen_rewrites(optimize: Optimize, model: str, source: str, program: Path) -> tuple[str, ...] | None:
    """Return the rewrites for `model`, whose program will be `program`; None if it is to stay as it is."""
    from model_profiling.export.catalogue import ONLY_IF_MEASURED

    if isinstance(optimize, tuple):
        return known_rewrites(optimize) or None
    if optimize is False:
        return None
    if not isinstance(optimize, bool):
        path = choice_file(optimize)
        choice = _read(path)
        if not choice.is_for(model, source):
            fix = "give the file of this model, or --optimize without a file"
            raise InputError(f"{path} is for the model {choice.model}, not for {model}", fix)
        return choice.kept
    # Where `sme2prof optimize` writes for this model, number format and backend.
    saved = program.parent.parent / "runs" / program.stem.removeprefix(f"{model}_") / OPTIMIZATION
    if saved.is_file() and (choice := _read(saved)).is_for(model, source):
        return choice.kept
    return tuple(name for name in _known() if name not in ONLY_IF_MEASURED)


def _known() -> tuple[str, ...]:
    from model_profiling.export.rewrites import names

    return names()


def known_rewrites(given: tuple[str, ...]) -> tuple[str, ...]:
    known = _known()
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"choose from {', '.join(known)}"
            raise InputError(f"there is no rewrite '{name}'", hint)
    return given


def choice_file(given: StrPath) -> Path:
    """Return the file of a saved choice that a person named, by itself or by its folder."""
    named = as_path(given)
    path = named / OPTIMIZATION if named.is_dir() else named
    if not path.is_file():
        fix = f"give the {OPTIMIZATION} of `sme2prof optimize`, or its folder; a model goes before --optimize"
        raise InputError(f"there is no file {path}", fix)
    return path


def _read(path: Path) -> SavedChoice:
    choice = read_record(SavedChoice, path, _AGAIN)
    unknown = [name for name in choice.kept if name not in _known()]
    if unknown:
        raise InputError(f"{path} has the rewrite '{unknown[0]}', which this kit does not have", _AGAIN)
    return choice
