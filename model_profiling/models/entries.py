"""The table of models that can be named on the command line.

A model's folder registers it by name with the place of its class, so that listing the table loads neither
the class nor torch; the class is imported when the model is exported.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.hints import pip_install
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import ModelOption, blaming

DTYPES = ("fp32", "fp16", "int8")
PACKAGE = "model_profiling.models"
XNNPACK_QUANTIZATION = ("NONE", "STATIC_PER_TENSOR", "STATIC_PER_CHANNEL", "DYNAMIC_PER_CHANNEL")
"""ExecuTorch's names of how its own scripts quantize a model."""
_OURS = "STATIC_PER_CHANNEL"


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
    """What may be asked for as `name@option=value`."""
    not_supported: Mapping[str, str] = field(default_factory=dict)
    """Why not, for dtypes that are not in `dtypes`."""
    xnnpack_quantization: str | None = None
    xnnpack_delegation: bool = True

    def check_dtype(self, dtype: str) -> None:
        """Refuse a dtype the model is not registered for."""
        if dtype in self.dtypes:
            return
        why = self.not_supported.get(dtype)
        raise InputError(
            f"'{self.name}' does not support {dtype}{f': {why}' if why else ''}",
            f"use --dtype {' or '.join(self.dtypes)}",
        )

    def remarks(self, dtype: str, backend: str) -> Iterator[str]:
        """What of the registration an export of the kit does not follow."""
        wanted = self.xnnpack_quantization
        if dtype == "int8" and wanted not in (None, _OURS):
            yield (
                f"'{self.name}' is registered with xnnpack_quantization=\"{wanted}\", which ExecuTorch's own"
                f" scripts follow; int8 of this kit is {_OURS}"
            )
        if backend == "xnnpack" and not self.xnnpack_delegation:
            yield (
                f"'{self.name}' is registered with xnnpack_delegation=False, which ExecuTorch's own scripts"
                " follow; here --backend portable leaves XNNPACK out"
            )


_entries: dict[str, ModelEntry] = {}
_classes: dict[str, type[EagerModelBase]] = {}


def register_model(
    name: str,
    cls: type[EagerModelBase] | str,
    *,
    inputs: Sequence[str] | None = None,
    dtypes: Sequence[str] | None = None,
    description: str = "",
    options: Sequence[ModelOption] = (),
    not_supported: Mapping[str, str] | None = None,
    xnnpack_quantization: str | None = None,
    xnnpack_delegation: bool = True,
) -> None:
    """Add a model under `name`; `cls` is its class, or `"package.module:Class"` to load it only when used.

    `inputs` and `description` are what `sme2prof models` shows, e.g. `["1x3x224x224 float32"]`. `options` are
    keywords of the class that a user may give as `name@option=value`. `not_supported` gives the reason for
    each dtype that the model cannot be had in. The last two are what ExecuTorch's own XNNPACK scripts are
    told about it.
    """
    if not name.isidentifier():
        raise InputError(
            f"'{name}' cannot name a model", "use letters, digits and underscores, not starting with a digit"
        )
    reference = cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"
    held = _entries.get(name)
    if held is not None and not _same_place(held.reference, reference):
        raise InputError(f"model '{name}' is registered already by {held.reference}", "choose another name")
    reasons = dict(not_supported or {})
    offered = tuple(dtypes) if dtypes is not None else tuple(each for each in DTYPES if each not in reasons)
    unknown = sorted({*offered, *reasons} - set(DTYPES))
    if unknown:
        raise InputError(f"model '{name}' names unknown dtypes {unknown}", f"choose from {', '.join(DTYPES)}")
    if xnnpack_quantization not in (None, *XNNPACK_QUANTIZATION):
        raise InputError(
            f"model '{name}' names the unknown xnnpack_quantization '{xnnpack_quantization}'",
            f"choose from {', '.join(XNNPACK_QUANTIZATION)}",
        )
    _entries[name] = ModelEntry(
        name=name,
        source="kit",
        reference=reference,
        description=description,
        inputs=tuple(inputs) if inputs is not None else None,
        dtypes=offered,
        options=tuple(options),
        not_supported=reasons,
        xnnpack_quantization=xnnpack_quantization,
        xnnpack_delegation=xnnpack_delegation,
    )
    if not isinstance(cls, str):
        _classes[name] = cls


def _same_place(one: str, other: str) -> bool:
    """Whether both name the same class; `models` may have been imported with and without its package."""
    return one.removeprefix("model_profiling.") == other.removeprefix("model_profiling.")


def load_registered(name: str, options: Mapping[str, object] | None = None) -> EagerModelBase:
    """Make the model registered under `name`; its class is imported now."""
    with blaming(f"model '{name}' cannot be loaded", import_fix):
        cls = _classes.get(name)
        if cls is None:
            module, _, attribute = _entries[name].reference.partition(":")
            cls = cast("type[EagerModelBase]", getattr(importlib.import_module(module), attribute))
        return cls(**(options or {}))


def import_fix(problem: BaseException) -> str:
    """What to do about code that cannot be imported."""
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        package = problem.name.partition(".")[0]
        if package not in sys.modules and not package.startswith("_"):
            return f"{pip_install(package)}, or correct the file"
    return "install what it imports, or correct the file"


def registered() -> dict[str, ModelEntry]:
    """What is in the table now, by name."""
    return dict(_entries)


def keep(entries: Mapping[str, ModelEntry]) -> None:
    """Make the table hold `entries` alone: what a folder left there that could not be imported is dropped."""
    for name in set(_entries) - set(entries):
        del _entries[name]
        _classes.pop(name, None)
    _entries.update(entries)


def home_of(entry: ModelEntry) -> Path | None:
    """The folder that holds the model's files; None where it is registered from elsewhere."""
    module = entry.reference.partition(":")[0]
    if not module.startswith(f"{PACKAGE}."):
        return None
    folder = module.removeprefix(f"{PACKAGE}.").partition(".")[0]
    places = importlib.import_module(PACKAGE).__path__
    return next((Path(place, folder) for place in places if Path(place, folder).is_dir()), None)


def unknown_model(name: str, known: Iterable[str]) -> InputError:
    """The error for a name nobody registered, with the nearest one that somebody did."""
    hint = did_you_mean(name, known)
    return InputError(
        f"no model is named '{name}'",
        f"{hint}{' ' if hint else ''}`sme2prof models` lists them; or name your own as file.py:factory",
    )
