"""Objects with the methods of ExecuTorch's example models that do not derive from our `EagerModelBase`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from model_profiling.models.base import EagerModelBase

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import DynamicShapes, ExampleInputs


class ModelMethods(Protocol):
    """The two methods every example model has; the keyword and shape methods are optional there."""

    def get_eager_model(self) -> torch.nn.Module: ...
    def get_example_inputs(self) -> object: ...


class AdaptedModel(EagerModelBase):
    """Such an object behind the kit's interface."""

    def __init__(self, model: ModelMethods) -> None:
        self._model = model

    def get_eager_model(self) -> torch.nn.Module:
        return self._model.get_eager_model()

    def get_example_inputs(self) -> ExampleInputs:
        inputs = self._model.get_example_inputs()
        return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)

    def get_example_kwarg_inputs(self) -> Mapping[str, object] | None:
        method = getattr(self._model, "get_example_kwarg_inputs", None)
        return cast("Mapping[str, object] | None", method()) if method else None

    def get_dynamic_shapes(self) -> DynamicShapes | None:
        method = getattr(self._model, "get_dynamic_shapes", None)
        return cast("DynamicShapes | None", method()) if method else None
