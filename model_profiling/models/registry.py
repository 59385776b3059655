"""The registry of models: those in the kit's own folders and in folders named in SME2PROF_MODELS.

A model's folder registers its name and the place of its class, so that listing loads neither the class nor
torch. Code elsewhere, including the working folder, is never imported unless the user names it.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import cast

from model_profiling.core.errors import InputError
from model_profiling.core.number_formats import FORMATS, parse_format
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import MARK, Chosen, ModelOption, blaming, chosen_options, loading_fix

PACKAGE = "model_profiling.models"
KIT = Path(__file__).parent
VARIABLE = "SME2PROF_MODELS"


class FormatNotForModel(InputError):
    """A number format that a model does not support, or that would change nothing in it."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One row of the registry."""

    name: str
    source: str
    reference: str
    description: str = ""
    inputs: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] = FORMATS
    options: tuple[ModelOption, ...] = ()
    """What the user may choose as `name@option=value`."""
    not_supported: Mapping[str, str] = field(default_factory=dict)
    """The reasons for dtypes that are not in `dtypes`."""

    def check_dtype(self, dtype: str) -> None:
        kind = parse_format(dtype).kind
        if reason := self.not_supported.get(kind):
            raise FormatNotForModel(
                f"'{self.name}' does not support {dtype}: {reason}",
                f"use --dtype {' or '.join(self.dtypes)}",
            )


_entries: dict[str, ModelEntry] = {}
_classes: dict[str, type[EagerModelBase]] = {}


def register_model(
    name: str,
    cls: type[EagerModelBase] | str,
    *,
    inputs: Sequence[str] | None = None,
    description: str = "",
    options: Sequence[ModelOption] = (),
    not_supported: Mapping[str, str] | None = None,
) -> None:
    """Add a model under `name`; `cls` is its class, or `"package.module:Class"` to load it only when used.

    `inputs` and `description` are what `sme2prof models` shows, e.g. `["1x3x224x224 float32"]`. `options` are
    keywords of the class that a user may give as `name@option=value`. `not_supported` gives the reason for
    each dtype that the model does not support.
    """
    if not name.isidentifier():
        fix = "use letters, digits and underscores, not starting with a digit"
        raise InputError(f"'{name}' is not a valid model name", fix)
    reference = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
    earlier = _entries[name].reference if name in _entries else reference
    # It may have been imported with and without its package: pytest imports a new model's folder by itself.
    plain = {place.removeprefix("model_profiling.").removeprefix("models.") for place in (earlier, reference)}
    if len(plain) > 1:
        raise InputError(
            f"the name '{name}' of {reference} is already used by {earlier}", "choose another name"
        )
    reasons = dict(not_supported or {})
    if unknown := sorted(reasons.keys() - set(FORMATS)):
        raise InputError(f"model '{name}' has unknown dtypes {unknown}", f"choose from {', '.join(FORMATS)}")
    _entries[name] = ModelEntry(
        name=name,
        source="kit",
        reference=reference,
        description=description,
        inputs=tuple(inputs) if inputs is not None else None,
        dtypes=tuple(dtype for dtype in FORMATS if dtype not in reasons),
        options=tuple(options),
        not_supported=reasons,
    )
    if not isinstance(cls, str):
        _classes[name] = cls


def load_registered(name: str, options: Mapping[str, object] | None = None) -> EagerModelBase:
    """Make the model registered under `name`, importing its class now."""
    with blaming(f"model '{name}' cannot be loaded", loading_fix):
        cls = _classes.get(name)
        if cls is None:
            module, _, attribute = _entries[name].reference.partition(":")
            cls = cast("type[EagerModelBase]", getattr(importlib.import_module(module), attribute))
        return cls(**(options or {}))


def home_of(entry: ModelEntry) -> Path | None:
    """The folder that holds the model's files; None if it is registered from elsewhere."""
    module = entry.reference.partition(":")[0]
    if not module.startswith(f"{PACKAGE}."):
        return None
    folder = module.removeprefix(f"{PACKAGE}.").partition(".")[0]
    return next((Path(place, folder) for place in _root().__path__ if Path(place, folder).is_dir()), None)


def discover() -> dict[str, ModelEntry]:
    """Import every model folder once; return all models but ExecuTorch's, by name. Raises an error that names
    a folder that cannot be imported."""
    searched_places = _root().__path__
    for place in map(str, named_places()):
        if place not in searched_places and place != str(KIT.resolve()):
            searched_places.append(place)
            importlib.invalidate_caches()
    taken: dict[str, Path] = {}
    for searched in map(Path, searched_places):
        for module in pkgutil.iter_modules([str(searched)]):
            folder = searched / module.name
            # In the kit's folder every package is a model, elsewhere only those that register one.
            start = folder / "__init__.py"
            if not module.ispkg or (searched != KIT and b"register_model" not in start.read_bytes()):
                continue
            if module.name in taken:
                raise InputError(f"{taken[module.name]} and {folder} have one name", "rename one folder")
            taken[module.name] = folder
            with blaming(f"model folder {folder} cannot be imported", loading_fix):
                importlib.import_module(f"{PACKAGE}.{folder.name}")
    entries = dict(_entries)
    for name, entry in entries.items():
        home = home_of(entry)
        if home is not None and home.parent != KIT:
            entries[name] = replace(entry, source="yours")
    return entries


def named_places() -> tuple[Path, ...]:
    """The folders of model folders that the user names; raises InputError if one does not exist."""
    words = os.environ.get(VARIABLE, "").split(os.pathsep)
    places = tuple(Path(word).expanduser().resolve() for word in words if word)
    for place in places:
        if not place.is_dir():
            raise InputError(f"{VARIABLE} is {place}, which is not a folder", "correct it, or unset it")
    return places


def _root() -> ModuleType:
    return importlib.import_module(PACKAGE)


def choose(spec: str) -> Chosen | None:
    """The registered model in `name` or `name@option=value,...`; None if there is none."""
    name, mark, options = spec.partition(MARK)
    entry = discover().get(name)
    if entry is None:
        return None
    return chosen_options(name, options, entry.options) if mark else Chosen(name, {})
