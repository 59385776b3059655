"""ExecuTorch's own example models, shown and loaded beside the kit's without touching its files.

Listing reads their source as text: which packages they import and which example inputs they declare. Only
loading one imports it, and with it torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from model_profiling.errors import InputError
from model_profiling.models.adapted import AdaptedModel, ModelMethods
from model_profiling.models.base import EagerModelBase
from model_profiling.models.registry import DTYPES, ModelEntry, discover, load_registered

PACKAGE = "executorch.examples.models"
SHAPED = {"randn": "float32", "rand": "float32", "ones": "float32", "zeros": "float32", "randint": "int64"}


def upstream_table() -> dict[str, tuple[str, str]]:
    """ExecuTorch's model names with the module and class of each; empty when it is not installed."""
    try:
        module = importlib.import_module(PACKAGE)
    except ImportError:
        return {}
    return {
        name: (str(place[0]), str(place[1]))
        for name, place in module.MODEL_NAME_TO_MODEL.items()
        if str(place[0]) not in discover()
    }


def upstream_entries() -> dict[str, ModelEntry]:
    """One registry row for each of ExecuTorch's example models."""
    entries = {}
    for name, (module, cls) in upstream_table().items():
        sources = _sources(module)
        entries[name] = ModelEntry(
            name=name,
            source="executorch",
            reference=f"{PACKAGE}.{module}:{cls}",
            inputs=_declared_inputs(sources, cls),
            dtypes=DTYPES,
            missing=_missing_packages(sources),
        )
    return entries


def load_upstream(name: str) -> EagerModelBase:
    """Import and make one of ExecuTorch's example models."""
    module, cls = upstream_table()[name]
    try:
        made = getattr(importlib.import_module(f"{PACKAGE}.{module}"), cls)()
    except ModuleNotFoundError as problem:
        package = (problem.name or str(problem)).partition(".")[0]
        raise InputError(
            f"ExecuTorch's model '{name}' needs the Python package '{package}', which is not installed",
            f"pip install {package}",
        ) from problem
    except (ImportError, OSError, RuntimeError) as problem:
        raise InputError(
            f"ExecuTorch's model '{name}' cannot be loaded here: {str(problem).splitlines()[0]}",
            "repair the package it names, or choose another model",
        ) from problem
    return AdaptedModel(cast(ModelMethods, made))


def add_to_executorch() -> tuple[str, ...]:
    """Enter the kit's models into ExecuTorch's table, for its own scripts run in this process.

    Only that table and `sys.modules` change; ExecuTorch's files stay as installed. Returns the added names.
    """
    table: dict[str, tuple[str, str]] = importlib.import_module(PACKAGE).MODEL_NAME_TO_MODEL
    added = []
    for name in discover():
        if name in table:
            continue
        cls = type(load_registered(name))
        sys.modules[f"{PACKAGE}.{name}"] = sys.modules[cls.__module__]
        table[name] = (name, cls.__qualname__)
        added.append(name)
    return tuple(added)


def _sources(module: str) -> list[ast.Module]:
    """The model's own files, reached from its package by relative imports."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))).joinpath(*module.split("."))
    waiting = [folder / "__init__.py"]
    seen: dict[Path, ast.Module] = {}
    while waiting:
        path = waiting.pop()
        if path in seen or not path.is_file():
            continue
        seen[path] = ast.parse(path.read_text(encoding="utf-8"))
        waiting += [
            path.parent / f"{node.module.replace('.', '/')}.py"
            for node in seen[path].body
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        ]
    return list(seen.values())


def _missing_packages(sources: Iterable[ast.Module]) -> tuple[str, ...]:
    wanted: set[str] = set()
    for source in sources:
        for node in source.body:
            if isinstance(node, ast.Import):
                wanted.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                wanted.add(node.module.partition(".")[0])
    return tuple(sorted(name for name in wanted if importlib.util.find_spec(name) is None))


def _declared_inputs(sources: Iterable[ast.Module], cls: str) -> tuple[str, ...] | None:
    """The shapes in the class's `get_example_inputs`, when they are written out as literals."""
    for source in sources:
        for node in source.body:
            if isinstance(node, ast.ClassDef) and node.name == cls:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "get_example_inputs":
                        return _literal_shapes(method)
    return None


def _literal_shapes(method: ast.FunctionDef) -> tuple[str, ...] | None:
    values: dict[str, ast.expr] = {}
    returned: ast.expr | None = None
    for statement in method.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            values[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.Return):
            returned = statement.value

    def follow(node: ast.expr) -> ast.expr:
        while isinstance(node, ast.Name) and node.id in values:
            node = values[node.id]
        return node

    if returned is None:
        return None
    returned = follow(returned)
    shapes = []
    for element in returned.elts if isinstance(returned, ast.Tuple) else [returned]:
        call = follow(element)
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            return None
        dtype = SHAPED.get(call.func.attr)
        arguments = [follow(argument) for argument in call.args]
        if dtype is None or call.keywords or not arguments:
            return None
        if call.func.attr == "randint":
            arguments = arguments[-1:]
        if len(arguments) == 1 and isinstance(arguments[0], (ast.Tuple, ast.List)):
            arguments = [follow(size) for size in arguments[0].elts]
        sizes = [size.value for size in arguments if isinstance(size, ast.Constant)]
        if len(sizes) != len(arguments) or not all(isinstance(size, int) for size in sizes):
            return None
        shapes.append("x".join(str(size) for size in sizes) + f" {dtype}")
    return tuple(shapes)
