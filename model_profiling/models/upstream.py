"""ExecuTorch's own example models, listed and loaded beside the kit's. Only loading one imports it, and with
it torch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from model_profiling.core.errors import ProfilingError
from model_profiling.models.base import EagerModelBase
from model_profiling.models.options import blaming, loading_fix
from model_profiling.models.registry import ModelEntry, discover, load_registered

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import DynamicShapes, ExampleInputs

PACKAGE = "executorch.examples.models"


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


def upstream_entries() -> list[ModelEntry]:
    return [
        ModelEntry(name, "executorch", f"{PACKAGE}.{module}:{cls}")
        for name, (module, cls) in upstream_table().items()
    ]


def load_upstream(name: str) -> EagerModelBase:
    module, cls = upstream_table()[name]
    with blaming(f"ExecuTorch's model '{name}' cannot be loaded", loading_fix):
        return AdaptedModel(getattr(importlib.import_module(f"{PACKAGE}.{module}"), cls)())


def add_to_executorch() -> tuple[str, ...]:
    """Add the kit's models to ExecuTorch's tables in this process, for its own scripts; its files do not
    change. Returns the added names; a model that cannot be loaded is left out."""
    table: dict[str, tuple[str, str]] = importlib.import_module(PACKAGE).MODEL_NAME_TO_MODEL
    xnnpack = importlib.import_module("executorch.examples.xnnpack")
    added = []
    for name in discover():
        if name in table:
            continue
        try:
            cls = type(load_registered(name))
        except ProfilingError:
            continue
        sys.modules[f"{PACKAGE}.{name}"] = sys.modules[cls.__module__]
        table[name] = (name, cls.__qualname__)
        xnnpack.MODEL_NAME_TO_OPTIONS[name] = xnnpack.XNNPACKOptions(xnnpack.QuantType.NONE, True)
        added.append(name)
    return tuple(added)
