"""The table of models that can be named on the command line.

A model's folder registers it by name with the place of its class, so that listing the table loads neither
the class nor torch; the class is imported when the model is exported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from model_profiling.errors import InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import MARK, Chosen, ModelOption, chosen_options
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
    options: tuple[ModelOption, ...] = ()
    not_supported: Mapping[str, str] = field(default_factory=dict)
    """Why not, for each dtype that is not in `dtypes`."""


_entries: dict[str, ModelEntry] = {}
_classes: dict[str, type[EagerModelBase]] = {}


def register_model(
    name: str,
    cls: type[EagerModelBase] | str,
    *,
    inputs: Sequence[str] | None = None,
    dtypes: Sequence[str] = DTYPES,
    description: str = "",
    options: Sequence[ModelOption] = (),
    not_supported: Mapping[str, str] | None = None,
) -> None:
    """Add a model under `name`; `cls` is its class, or `"package.module:Class"` to load it only when used.

    `inputs` and `description` are what `sme2prof models` shows, e.g. `["1x3x224x224 float32"]`. `options` are
    keywords of the class that a user may give as `name@option=value`. `not_supported` gives the reason for a
    dtype that is left out of `dtypes`.
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
        options=tuple(options),
        not_supported=dict(not_supported or {}),
    )
    if not isinstance(cls, str):
        _classes[name] = cls


def load_registered(name: str, options: Mapping[str, object] | None = None) -> EagerModelBase:
    """Make the model registered under `name`; its class is imported now."""
    if name in _classes:
        return _classes[name](**(options or {}))
    module, _, attribute = _entries[name].reference.partition(":")
    made = cast("type[EagerModelBase]", getattr(importlib.import_module(module), attribute))
    return made(**(options or {}))


def choose(spec: str) -> Chosen | None:
    """The registered model that `name` or `name@option=value,...` names; None where none goes by that
    name."""
    name, mark, options = spec.partition(MARK)
    entry = discover().get(name)
    if entry is None:
        return None
    return chosen_options(name, options, entry.options) if mark else Chosen(name, {})


def check_dtype(name: str, dtype: str) -> None:
    """Refuse a dtype that the registered model says it does not support."""
    entry = discover()[name]
    if dtype not in entry.dtypes:
        reason = entry.not_supported.get(dtype)
        raise InputError(
            f"'{name}' does not support {dtype}{f': {reason}' if reason else ''}",
            f"use --dtype {' or '.join(entry.dtypes)}",
        )


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
