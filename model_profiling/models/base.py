"""The one interface a model implements to be exported and profiled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    ExampleInputs = tuple[object, ...]
    DynamicShapes = Mapping[str, object] | tuple[object, ...] | list[object]


class EagerModelBase(ABC):
    """A PyTorch model together with the inputs that stand for its real use.

    The first two methods are required. The method names and their meaning match ExecuTorch's own example
    models, so a class written for one works with the other.
    """

    @abstractmethod
    def get_eager_model(self) -> torch.nn.Module:
        """The module to export; it is put into evaluation mode by the exporter."""

    @abstractmethod
    def get_example_inputs(self) -> ExampleInputs:
        """Positional inputs of one inference, in the shapes and types the model meets in use."""

    def get_example_kwarg_inputs(self) -> Mapping[str, object] | None:
        """Keyword inputs of one inference, if `forward` takes any."""
        return None

    def get_dynamic_shapes(self) -> DynamicShapes | None:
        """Which dimensions may vary, in the form `torch.export.export` takes."""
        return None

    def get_calibration_inputs(self) -> Iterable[ExampleInputs] | None:
        """Inputs to calibrate int8 quantization on; the example inputs serve when there are none."""
        return None
