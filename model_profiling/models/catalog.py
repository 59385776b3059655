"""From what a user names to a model: a registered name, ExecuTorch's example, or any factory of their own."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from model_profiling.errors import InputError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.blame import place_in_user_code
from model_profiling.models.foreign import ForeignModel, ModelMethods
from model_profiling.models.registry import ModelEntry, discover, load_registered, unknown_model
from model_profiling.models.upstream import load_upstream, upstream_entries, upstream_table

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import ExampleInputs

REFERENCE_HELP = "write path/file.py:factory or package.module:factory"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model ready to export, under the name its files carry."""

    name: str
    source: str
    model: EagerModelBase


class FactoryModel(EagerModelBase):
    """What a user's factory returned, behind the kit's interface."""

    def __init__(
        self, module: torch.nn.Module, inputs: ExampleInputs, calibration: Iterable[ExampleInputs] | None
    ) -> None:
        self._module, self._inputs, self._calibration = module, inputs, calibration

    def get_eager_model(self) -> torch.nn.Module:
        return self._module

    def get_example_inputs(self) -> ExampleInputs:
        return self._inputs

    def get_calibration_inputs(self) -> Iterable[ExampleInputs] | None:
        return self._calibration


def list_models() -> list[ModelEntry]:
    """Every model that can be named: the kit's own first, then ExecuTorch's; loads none of them."""
    own = discover()
    return [own[name] for name in sorted(own)] + list(upstream_entries().values())


def load_model(spec: str, name: str | None = None) -> NamedModel:
    """Make the model `spec` names; `name` replaces the name its files would carry."""
    if ":" in spec or spec.endswith(".py"):
        loaded = _load_reference(spec)
    elif spec in discover():
        loaded = NamedModel(spec, "kit", load_registered(spec))
    elif spec in upstream_table():
        loaded = NamedModel(spec, "executorch", load_upstream(spec))
    else:
        raise unknown_model(spec, [*discover(), *upstream_table()])
    return loaded if name is None else NamedModel(name, loaded.source, loaded.model)


def load_attribute(reference: str) -> tuple[str, ModuleType, object]:
    """Import what `file.py:attribute` or `package.module:attribute` names."""
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(f"'{reference}' does not name a factory", REFERENCE_HELP)
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    if not hasattr(module, attribute):
        public = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
        ]
        raise InputError(
            f"{place} has no '{attribute}'",
            f"it defines {', '.join(public[:6])}" if public else REFERENCE_HELP,
        )
    stem = Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]
    return f"{stem}_{attribute}", module, getattr(module, attribute)


def _load_reference(reference: str) -> NamedModel:
    name, module, factory = load_attribute(reference)
    if not callable(factory):
        raise InputError(f"{reference} is not callable", "name a function or class that makes the model")
    try:
        made = factory()
    except Exception as problem:
        where = place_in_user_code(problem)
        raise InputError(
            f"{reference} raised {type(problem).__name__}: {problem}" + (f" at {where}" if where else ""),
            "make the factory work when called without arguments",
        ) from problem
    return NamedModel(
        re.sub(r"\W", "_", name),
        "reference",
        _as_model(reference, made, getattr(module, "calibration", None)),
    )


def _as_model(reference: str, made: object, calibration: object) -> EagerModelBase:
    if isinstance(made, EagerModelBase):
        return made
    if hasattr(made, "get_eager_model") and hasattr(made, "get_example_inputs"):
        return ForeignModel(cast(ModelMethods, made))
    import torch

    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        inputs = made[1]
        if isinstance(inputs, torch.Tensor):
            inputs = (inputs,)
        if isinstance(inputs, (tuple, list)) and inputs:
            batches = calibration() if callable(calibration) else calibration
            return FactoryModel(made[0], tuple(inputs), cast("Iterable[ExampleInputs] | None", batches))
    raise InputError(
        f"{reference} returned {_describe(made)}",
        "return (module, example_inputs) with a tuple of tensors, or an EagerModelBase",
    )


def _describe(made: object) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    return type(made).__name__


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"there is no file {path}", REFERENCE_HELP)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file", REFERENCE_HELP)
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as problem:
        del sys.modules[path.stem]
        if isinstance(problem, Exception):
            raise _import_failure(str(path), problem) from problem
        raise
    return module


def _import_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as problem:
        raise _import_failure(name, problem) from problem


def _import_failure(what: str, problem: Exception) -> InputError:
    where = place_in_user_code(problem)
    return InputError(
        f"{what} cannot be imported: {type(problem).__name__}: {problem}" + (f" at {where}" if where else ""),
        "install what it imports, or correct the file",
    )
