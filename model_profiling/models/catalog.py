"""Turns what a user names into a model: a registered name, an ExecuTorch example, or the user's factory."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from model_profiling.core.errors import InputError, WrongTypeError
from model_profiling.core.files import as_path
from model_profiling.core.formatting import did_you_mean
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import MARK, blaming, loading_fix
from model_profiling.models.registry import (
    VARIABLE,
    ModelEntry,
    choose,
    discover,
    load_registered,
)
from model_profiling.models.transformers_folder import CONFIG, TransformersModel, choose_folder

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import DynamicShapes, ExampleInputs, Inputs, Model

REFERENCE_HELP = "write path/file.py:factory or package.module:factory"


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model ready to export, under the name that its files carry."""

    name: str
    source: str
    model: EagerModelBase


@dataclass(frozen=True, slots=True, eq=False)
class FactoryModel(EagerModelBase):
    """A user's module with its inputs, behind the kit's interface."""

    module: torch.nn.Module
    inputs: ExampleInputs
    calibration: object = None
    named_inputs: Mapping[str, object] | None = None

    def get_eager_model(self) -> torch.nn.Module:
        return self.module

    def get_example_inputs(self) -> ExampleInputs:
        return self.inputs

    def get_example_kwarg_inputs(self) -> Mapping[str, object] | None:
        return self.named_inputs

    def get_calibration_inputs(self) -> Iterable[ExampleInputs] | None:
        batches = self.calibration() if callable(self.calibration) else self.calibration
        return cast("Iterable[ExampleInputs] | None", batches)


# ExecuTorch's own example models: only loading one imports it.

EXECUTORCH = "executorch.examples.models"


class AdaptedModel(EagerModelBase):
    """Adapts one of ExecuTorch's example models, of whose methods only the first two are certain."""

    def __init__(self, model: object) -> None:
        self._model = cast(EagerModelBase, model)

    def get_eager_model(self) -> torch.nn.Module:
        return self._model.get_eager_model()

    def get_example_inputs(self) -> ExampleInputs:
        inputs: object = self._model.get_example_inputs()
        return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)

    def get_example_kwarg_inputs(self) -> Mapping[str, object] | None:
        return getattr(self._model, "get_example_kwarg_inputs", super().get_example_kwarg_inputs)()

    def get_dynamic_shapes(self) -> DynamicShapes | None:
        return getattr(self._model, "get_dynamic_shapes", super().get_dynamic_shapes)()


def upstream_table() -> dict[str, tuple[str, str]]:
    """ExecuTorch's model names with the module and class of each; empty if it is not installed."""
    try:
        module = importlib.import_module(EXECUTORCH)
    except ImportError:
        return {}
    ours = discover()
    return {
        name: (str(place[0]), str(place[1]))
        for name, place in module.MODEL_NAME_TO_MODEL.items()
        if name not in ours and str(place[0]) not in ours
    }


def load_upstream(name: str) -> EagerModelBase:
    module, cls = upstream_table()[name]
    with blaming(f"ExecuTorch's model '{name}' cannot be loaded", loading_fix):
        return AdaptedModel(getattr(importlib.import_module(f"{EXECUTORCH}.{module}"), cls)())


def list_models() -> list[ModelEntry]:
    """Every model that can be named, the kit's own first, then ExecuTorch's; loads none of them."""
    own = discover()
    return [own[name] for name in sorted(own)] + [
        ModelEntry(name, "executorch", f"{EXECUTORCH}.{module}:{cls}")
        for name, (module, cls) in upstream_table().items()
    ]


def load_model(spec: str, name: str | None = None) -> NamedModel:
    """Load the model that `spec` names; `name` replaces the name that its files carry."""
    file_name, source, make = _resolve(spec)
    return NamedModel(name or file_name, source, make())


def file_name_of(spec: str) -> str:
    """The name that a model's files carry, without loading it; raises InputError if it is unknown."""
    return _resolve(spec)[0]


def _resolve(spec: str) -> tuple[str, str, Callable[[], EagerModelBase]]:
    """The model's file name, its source, and what makes it."""
    if chosen := choose(spec):
        reference = discover()[chosen.model].reference
        make = partial(load_registered, chosen.model, chosen.values)
        return chosen.file_name, chosen.source, lambda: _as_model(reference, make(), None)
    if ":" in spec or spec.endswith(".py"):
        place, attribute = _checked_reference(spec)
        is_file = place.endswith(".py")
        source = f"{Path(place).resolve()}:{attribute}" if is_file else spec
        stem = Path(place).stem if is_file else place.rpartition(".")[2]
        return re.sub(r"\W", "_", f"{stem}_{attribute}"), source, partial(_load_reference, spec)
    if spec in upstream_table():
        return spec, "executorch", partial(load_upstream, spec)
    if chosen_folder := choose_folder(spec):
        folder, given = chosen_folder
        _, mark, options = spec.partition(MARK)
        source = f"transformers:{folder.resolve()}{mark}{options}"
        return given.file_name, source, partial(TransformersModel, folder, given.values)
    raise _unknown(spec)


_MODELS = (
    "give a torch.nn.Module with its inputs, an EagerModelBase, a name that `sme2prof models` lists, "
    "file.py:factory, or the path of a .pte file"
)
_INPUTS = "give a tensor, a tuple of positional inputs, or a dict of keyword inputs"


def given_model(
    model: Model | NamedModel, inputs: Inputs | None = None, name: str | None = None
) -> str | NamedModel:
    """What a Python caller calls a model: names and paths stay text, a module in memory is made ready to
    export under its class's name, or `name`."""
    if isinstance(model, NamedModel):
        return model
    if isinstance(model, str | os.PathLike | EagerModelBase) and inputs is not None:
        raise InputError(f"{model} has inputs of its own", "leave inputs out, or give a torch.nn.Module")
    if isinstance(model, str):
        return model
    if isinstance(model, os.PathLike):
        return str(as_path(model))
    cls = type(model)
    torch = sys.modules.get("torch")  # a caller with a module has loaded it
    if torch is not None and isinstance(model, torch.nn.Module):
        positional, named = _arguments(inputs)
        model = FactoryModel(model, positional, named_inputs=named)
    if not isinstance(model, EagerModelBase):
        if isinstance(model, type):
            raise WrongTypeError(f"the model is the class {model.__name__}", f"give {model.__name__}(...)")
        raise WrongTypeError(f"the model is of type {cls.__name__}", _MODELS)
    return NamedModel(name or re.sub(r"\W", "_", cls.__name__), f"{cls.__module__}.{cls.__qualname__}", model)


def _arguments(inputs: object) -> tuple[ExampleInputs, Mapping[str, object]]:
    """The positional and the keyword inputs that a caller gave."""
    import torch

    if inputs is None:
        raise WrongTypeError("a module needs its inputs", _INPUTS)
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if not isinstance(inputs, tuple | list | Mapping):
        raise WrongTypeError(f"the inputs are of type {type(inputs).__name__}", _INPUTS)
    named = {str(key): value for key, value in inputs.items()} if isinstance(inputs, Mapping) else {}
    positional = () if named else tuple(inputs)
    for key, value in named.items() or enumerate(positional):
        if not isinstance(value, torch.Tensor | bool | int | float | str | tuple | list | Mapping | None):
            raise WrongTypeError(f"inputs[{key!r}] is of type {type(value).__name__}", "give a torch.Tensor")
    return positional, named


_OTHER_FORMATS = (
    ".onnx", ".tflite", ".pb", ".h5", ".keras", ".mlmodel", ".mlpackage", ".gguf",
    ".pt", ".pth", ".pt2", ".ckpt", ".bin", ".safetensors",
)  # fmt: skip
"""Models of other tools, and weights alone."""


def _unknown(spec: str) -> InputError:
    bare = spec.partition(MARK)[0]
    if Path(bare).suffix.lower() in _OTHER_FORMATS:
        return InputError(
            f"{bare} is neither a program (.pte) nor a PyTorch model",
            "write a factory that returns the module (and loads its weights), and name it: file.py:factory",
        )
    if bare in upstream_table():
        return InputError(f"ExecuTorch's model '{bare}' takes no options", f"write only {bare}")
    if Path(bare).is_dir():
        fix = f"give the folder of a transformers model; for a model folder here, export {VARIABLE}=$PWD"
        return InputError(f"the folder {bare} has no {CONFIG}", fix)
    hint = did_you_mean(bare, [*discover(), *upstream_table()])
    fix = "`sme2prof models` lists them; for your own, write file.py:factory"
    return InputError(f"there is no model '{bare}'", f"{hint} {fix}".strip())


def load_attribute(reference: str) -> tuple[ModuleType, object]:
    """Import what `file.py:attribute` or `package.module:attribute` names."""
    place, attribute = _checked_reference(reference)
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    if not hasattr(module, attribute):
        public = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
        ]
        listed = f"it defines {', '.join(public[:6])}" if public else REFERENCE_HELP
        raise InputError(f"{place} has no '{attribute}'", did_you_mean(attribute, public) or listed)
    return module, getattr(module, attribute)


def _checked_reference(reference: str) -> tuple[str, str]:
    place, _, attribute = reference.rpartition(":")
    if not place or not attribute.isidentifier():
        raise InputError(f"'{reference}' is not a factory", REFERENCE_HELP)
    if place.endswith(".py") and not Path(place).is_file():
        raise InputError(f"there is no file {place}", REFERENCE_HELP)
    return place, attribute


def _load_reference(reference: str) -> EagerModelBase:
    module, factory = load_attribute(reference)
    if not callable(factory):
        raise InputError(f"{reference} is not callable", "give a function or class that creates the model")
    with blaming(f"{reference} failed", loading_fix):
        try:
            inspect.signature(factory).bind()
        except TypeError as problem:
            fix = "make the factory work when called without arguments"
            raise InputError(f"{reference} needs arguments: {problem}", fix) from problem
        except ValueError:  # a callable of a library in C has no signature
            pass
        made = factory()
    return _as_model(reference, made, getattr(module, "calibration", None))


def _as_model(reference: str, made: object, calibration: object) -> EagerModelBase:
    if isinstance(made, EagerModelBase):
        return made
    if hasattr(made, "get_eager_model") and hasattr(made, "get_example_inputs"):
        return AdaptedModel(made)
    import torch

    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], torch.nn.Module):
        inputs = (made[1],) if isinstance(made[1], torch.Tensor) else made[1]
        if isinstance(inputs, (tuple, list)):
            return FactoryModel(made[0], tuple(inputs), calibration)
    returned = type(made).__name__
    if isinstance(made, tuple):
        returned = f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    raise InputError(
        f"{reference} returned {returned}",
        "return (module, example_inputs), the module first and then a tuple of tensors, or an EagerModelBase",
    )


def _import_file(path: Path) -> ModuleType:
    # Loaded first: a user's file with the name of a library must not replace it.
    import torch

    del torch
    path = path.resolve()
    folder = import_root(path)
    _search_in(folder)
    if folder != path.parent:
        return _import_module(".".join(path.relative_to(folder).with_suffix("").parts))
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file", REFERENCE_HELP)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with blaming(f"{path} cannot be imported", loading_fix):
        spec.loader.exec_module(module)
    return module


def import_root(path: Path) -> Path:
    """The folder from which a file is imported: its own, or the one that has its package."""
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _module_name(path: Path) -> str:
    """The file's own name, unless a library or a file elsewhere has it."""
    try:
        taken = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        taken = None
    mine = taken is None or (taken.origin is not None and Path(taken.origin) == path)
    return path.stem if mine else f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"


def _search_in(folder: Path) -> None:
    """Let the user's files import their neighbours; at the end of the path, so that they hide no library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_module(name: str) -> ModuleType:
    _search_in(Path.cwd())
    with blaming(f"{name} cannot be imported", loading_fix):
        return importlib.import_module(name)
