"""ExecuTorch's own example models, listed and loaded beside the kit's. Listing reads their source as text;
only loading one imports it, and with it torch."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.hints import pip_install
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import DOWNLOAD_FIX, failed_download
from model_profiling.models.registry import ModelEntry, discover, load_registered

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import DynamicShapes, ExampleInputs

PACKAGE = "executorch.examples.models"
SHAPED = {"randn": "float32", "rand": "float32", "ones": "float32", "zeros": "float32", "randint": "int64"}


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
        module = importlib.import_module(PACKAGE)
    except ImportError:
        return {}
    ours = discover()
    return {
        name: (str(place[0]), str(place[1]))
        for name, place in module.MODEL_NAME_TO_MODEL.items()
        if name not in ours and str(place[0]) not in ours
    }


def upstream_entries() -> dict[str, ModelEntry]:
    entries = {}
    for name, (module, cls) in upstream_table().items():
        statements = _statements(module)
        entries[name] = ModelEntry(
            name=name,
            source="executorch",
            reference=f"{PACKAGE}.{module}:{cls}",
            inputs=_declared_inputs(statements, cls),
            missing=_missing_packages(statements),
        )
    return entries


def load_upstream(name: str) -> EagerModelBase:
    module, cls = upstream_table()[name]
    try:
        made = getattr(importlib.import_module(f"{PACKAGE}.{module}"), cls)()
    except ModuleNotFoundError as problem:
        package = (problem.name or str(problem)).partition(".")[0]
        raise InputError(
            f"ExecuTorch's model '{name}' needs the Python package '{package}', which is not installed",
            pip_install(package),
        ) from problem
    except (ImportError, OSError, RuntimeError) as problem:
        said = (
            f"ExecuTorch's model '{name}' cannot be loaded here: {str(problem).splitlines()[0].rstrip('.')}"
        )
        fix = "repair that package, or choose another model"
        raise InputError(said, DOWNLOAD_FIX if failed_download(problem) else fix) from problem
    return AdaptedModel(made)


def add_to_executorch() -> tuple[str, ...]:
    """Add the kit's models to ExecuTorch's tables in this process, for its own scripts; its files do not
    change. Returns the added names; a model that cannot be loaded is left out."""
    table: dict[str, tuple[str, str]] = importlib.import_module(PACKAGE).MODEL_NAME_TO_MODEL
    xnnpack = importlib.import_module("executorch.examples.xnnpack")
    added = []
    for name, entry in discover().items():
        if name in table:
            continue
        try:
            cls = type(load_registered(name))
        except ProfilingError:
            continue
        sys.modules[f"{PACKAGE}.{name}"] = sys.modules[cls.__module__]
        table[name] = (name, cls.__qualname__)
        xnnpack.MODEL_NAME_TO_OPTIONS[name] = xnnpack.XNNPACKOptions(
            xnnpack.QuantType[entry.xnnpack_quantization or "NONE"], entry.xnnpack_delegation
        )
        added.append(name)
    return tuple(added)


def _statements(module: str) -> list[ast.stmt]:
    """All statements in the model's own files, found from its package by relative imports."""
    waiting = [Path(importlib.import_module(PACKAGE).__path__[0], *module.split("."), "__init__.py")]
    seen: dict[Path, list[ast.stmt]] = {}
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen[path] = ast.parse(path.read_text(encoding="utf-8")).body
        waiting += [
            path.parent / f"{node.module.replace('.', '/')}.py"
            for node in seen[path]
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        ]
    return [statement for body in seen.values() for statement in body]


def _missing_packages(statements: Iterable[ast.stmt]) -> tuple[str, ...]:
    wanted: set[str] = set()
    for statement in statements:
        match statement:
            case ast.Import(names=names):
                wanted.update(alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                wanted.add(module.partition(".")[0])
    return tuple(sorted(name for name in wanted if importlib.util.find_spec(name) is None))


def _declared_inputs(statements: Iterable[ast.stmt], cls: str) -> tuple[str, ...] | None:
    """The shapes in the class's `get_example_inputs`, if they are literals."""
    classes = (node for node in statements if isinstance(node, ast.ClassDef) and node.name == cls)
    for method in (part for found in classes for part in found.body):
        if isinstance(method, ast.FunctionDef) and method.name == "get_example_inputs":
            return _literal_shapes(method)
    return None


def _literal_shapes(method: ast.FunctionDef) -> tuple[str, ...] | None:
    values: dict[str, ast.expr] = {}
    returned: ast.expr | None = None
    for statement in method.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                values[name] = value
            case ast.Return(value=value):
                returned = value

    def follow(node: ast.expr | None) -> ast.expr | None:
        while isinstance(node, ast.Name) and node.id in values:
            node = values[node.id]
        return node

    returned = follow(returned)
    shapes = []
    for element in returned.elts if isinstance(returned, ast.Tuple) else [returned]:
        match follow(element):
            case ast.Call(func=ast.Attribute(attr=maker), args=[*_, last] as arguments, keywords=[]):
                shape = follow(last)
                sizes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else arguments
                numbers = [size.value for size in map(follow, sizes) if isinstance(size, ast.Constant)]
                if maker not in SHAPED or len(numbers) < len(sizes):
                    return None
                shapes.append(f"{'x'.join(map(str, numbers))} {SHAPED[maker]}")
            case _:
                return None
    return tuple(shapes)
