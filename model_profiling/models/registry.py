"""The table of models that can be named on the command line.

A model's folder registers it by name with the place of its class, so that listing the table loads neither
the class nor torch; the class is imported when the model is exported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from model_profiling.errors import InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.wording import did_you_mean

DTYPES = ("fp32", "fp16", "int8")


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One row of the registry."""

    name: str
    source: str
    reference: str
    description: str = ""
    inputs: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] = DTYPES
    missing: tuple[str, ...] = ()
    """Python packages the model imports that are not installed here."""


_entries: dict[str, ModelEntry] = {}
_classes: dict[str, type[EagerModelBase]] = {}


def register_model(
    name: str,
    cls: type[EagerModelBase] | str,
    *,
    inputs: Sequence[str] | None = None,
    dtypes: Sequence[str] = DTYPES,
    description: str = "",
) -> None:
    """Add a model under `name`; `cls` is its class, or `"package.module:Class"` to load it only when used.

    `inputs` and `description` are what `sme2prof models` shows, e.g. `["1x3x224x224 float32"]`.
    """
    if not name.isidentifier():
        raise InputError(
            f"'{name}' cannot name a model", "use letters, digits and underscores, not starting with a digit"
        )
    reference = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
    if name in _entries:
        raise InputError(
            f"model '{name}' is registered already by {_entries[name].reference}", "choose another name"
        )
    unknown = sorted(set(dtypes) - set(DTYPES))
    if unknown:
        raise InputError(f"model '{name}' names unknown dtypes {unknown}", f"choose from {', '.join(DTYPES)}")
    _entries[name] = ModelEntry(
        name=name,
        source="kit",
        reference=reference,
        description=description,
        inputs=tuple(inputs) if inputs is not None else None,
        dtypes=tuple(dtypes),
    )
    if not isinstance(cls, str):
        _classes[name] = cls


def load_registered(name: str) -> EagerModelBase:
    """Make the model registered under `name`; its class is imported now."""
    if name in _classes:
        return _classes[name]()
    module, _, attribute = _entries[name].reference.partition(":")
    return cast("type[EagerModelBase]", getattr(importlib.import_module(module), attribute))()


def discover(package: str = "model_profiling.models") -> dict[str, ModelEntry]:
    """Import every model folder once and return the kit's own rows by name."""
    root = importlib.import_module(package)
    for module in pkgutil.iter_modules(root.__path__):
        if module.ispkg:
            importlib.import_module(f"{package}.{module.name}")
    return dict(_entries)


def unknown_model(name: str, known: Iterable[str]) -> InputError:
    """The error for a name nobody registered, with the nearest one that somebody did."""
    hint = did_you_mean(name, known)
    return InputError(
        f"no model is named '{name}'",
        f"{hint}{' ' if hint else ''}`sme2prof models` lists them; or name your own as file.py:factory",
    )
