"""The models that can be named: those of the kit's own folders, and of folders the user names in
SME2PROF_MODELS.

A folder that cannot be imported is set aside with its cause; all other models stay in reach. Code in other
places, the working folder among them, is never imported unless the user names it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.models import entries
from model_profiling.models.entries import (
    DTYPES,
    PACKAGE,
    ModelEntry,
    home_of,
    load_registered,
    register_model,
    unknown_model,
)
from model_profiling.models.options import MARK, Chosen, blaming, chosen_options

__all__ = [
    "DTYPES",
    "ModelEntry",
    "choose",
    "discover",
    "home_of",
    "load_registered",
    "register_model",
    "skipped_folders",
    "unknown_model",
]

VARIABLE = "SME2PROF_MODELS"
KIT = Path(__file__).parent
_REGISTERS = re.compile(r"""register_model\(\s*(?:name\s*=\s*)?["'](\w+)["']""")


@dataclass(frozen=True, slots=True)
class SkippedFolder:
    """A model folder that cannot be imported, and why."""

    folder: str
    names: tuple[str, ...]
    """What people may ask for and mean it."""
    problem: str
    fix: str

    @property
    def text(self) -> str:
        return f"model folder {self.folder} is skipped: {self.problem}; {self.fix}"


_skipped: dict[tuple[str, str], tuple[int, SkippedFolder]] = {}
"""By package and folder; with when its files were changed last, after which it is tried again."""


def discover(package: str = PACKAGE) -> dict[str, ModelEntry]:
    """Import every model folder once and return the rows that are not ExecuTorch's, by name."""
    root = importlib.import_module(package)
    if package == PACKAGE:
        for place in named_places():
            add_place(place)
    taken: dict[str, Path] = {}
    for searched in map(Path, root.__path__):
        for module in pkgutil.iter_modules([str(searched)]):
            folder = searched / module.name
            if not module.ispkg or not _is_model(searched, module.name):
                _skipped.pop((package, str(folder)), None)
                continue
            if module.name in taken:
                held = f"{taken[module.name]} holds a folder of that name already"
                _skip(package, folder, InputError(held, "give it another name"))
            else:
                taken[module.name] = searched
                _import_folder(package, folder)
    return {name: _sourced(entry) for name, entry in entries.registered().items()}


def skipped_folders(package: str = PACKAGE) -> tuple[SkippedFolder, ...]:
    """What `discover` could not import, in the order it was met."""
    return tuple(skipped for (owner, _), (_, skipped) in _skipped.items() if owner == package)


def named_places() -> tuple[Path, ...]:
    """The folders of model folders that the user names; one that is not there is an error."""
    words = os.environ.get(VARIABLE, "").split(os.pathsep)
    places = tuple(Path(word).expanduser().resolve() for word in words if word)
    for place in places:
        if not place.is_dir():
            raise InputError(f"{VARIABLE} names {place}, which is no folder", "correct it, or leave it unset")
    return places


def add_place(place: Path) -> None:
    """Look for model folders in `place` too; they are imported as if they lay in the kit's own folder."""
    searched = _root().__path__
    if str(place) not in searched and place != KIT.resolve():
        searched.append(str(place))
        importlib.invalidate_caches()


def searched_for(name: str) -> list[Path]:
    """The packages called `name` in all places that are looked in, whether they register a model or not."""
    folders = [Path(place) / name for place in _root().__path__]
    return [folder for folder in folders if (folder / "__init__.py").is_file()]


def _root() -> ModuleType:
    return importlib.import_module(PACKAGE)


def _is_model(place: Path, name: str) -> bool:
    """Whether to import a package: in the kit's folder each is a model, elsewhere those that register one."""
    if place == KIT or str(place) not in _root().__path__:
        return True
    return "register_model" in _text(place / name)


def _text(folder: Path) -> str:
    try:
        return (folder / "__init__.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _import_folder(package: str, folder: Path) -> None:
    key, changed = (package, str(folder)), _changed(folder)
    if key in _skipped and _skipped[key][0] == changed:
        return
    before = entries.registered()
    try:
        with blaming(f"{folder.name} cannot be imported", entries.import_fix):
            importlib.import_module(f"{package}.{folder.name}")
    except ProfilingError as problem:
        entries.keep(before)
        for name in [name for name in sys.modules if name.startswith(f"{package}.{folder.name}.")]:
            del sys.modules[name]  # else a corrected folder would be given what it was before
        _skip(package, folder, problem)
    else:
        _skipped.pop(key, None)


def _skip(package: str, folder: Path, problem: ProfilingError) -> None:
    names = dict.fromkeys((folder.name, *_REGISTERS.findall(_text(folder))))
    skipped = SkippedFolder(str(folder), tuple(names), problem.problem, problem.fix)
    _skipped[package, str(folder)] = (_changed(folder), skipped)


def _changed(folder: Path) -> int:
    return max((file.stat().st_mtime_ns for file in sources_in(folder)), default=0)


def sources_in(folder: Path) -> Iterable[Path]:
    """Every Python file of a model folder, what it took over from others included."""
    return sorted(folder.rglob("*.py"))


def _sourced(entry: ModelEntry) -> ModelEntry:
    home = home_of(entry)
    return replace(entry, source="yours") if home is not None and home.parent != KIT else entry


def check_not_skipped(name: str) -> None:
    """Raise the cause where `name` is a model of a folder that could not be imported."""
    for skipped in skipped_folders():
        if name in skipped.names:
            raise InputError(f"model folder {skipped.folder}: {skipped.problem}", skipped.fix)


def choose(spec: str) -> Chosen | None:
    """The registered model that `name` or `name@option=value,...` names; None where there is none."""
    name, mark, options = spec.partition(MARK)
    entry = discover().get(name)
    if entry is None:
        return None
    return chosen_options(name, options, entry.options) if mark else Chosen(name, {})
