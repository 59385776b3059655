"""The interface a model implements to be exported and profiled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

    from model_profiling.core.files import StrPath

    Model: TypeAlias = "StrPath | torch.nn.Module | EagerModelBase"
    Inputs = torch.Tensor | tuple[object, ...] | list[object] | Mapping[str, object]
    ExampleInputs = tuple[object, ...]
    DynamicShapes = Mapping[str, object] | tuple[object, ...] | list[object]
    Constants = Mapping[str, bool | int | list[int]]


@dataclass(frozen=True, slots=True)
class ModelMethod:
    """One method of a program with several: the module is called with these inputs, whose dimensions in
    `dynamic_shapes` may vary."""

    inputs: ExampleInputs
    dynamic_shapes: DynamicShapes | None = None


class EagerModelBase(ABC):
    """A PyTorch model together with the inputs that stand for its real use. Method names and their meaning
    match ExecuTorch's own example models, so a class written for one works with the other."""

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

    def get_methods(self) -> Mapping[str, ModelMethod] | None:
        """The program's methods by name, in the order in which an application calls them. They share weights
        and buffers. None for one method, `forward`, with the example inputs."""
        return None

    def get_constant_methods(self) -> Constants:
        """Facts that an application can ask the program for, by name, such as `get_vocab_size`."""
        return {}

    def get_calibration_inputs(self) -> Iterable[ExampleInputs] | None:
        """Inputs to calibrate int8 quantization on; the example inputs serve when there are none."""
        return None


def settle(
    network: torch.nn.Module, inputs: Sequence[object], sizes: Mapping[str, float] | None = None
) -> None:
    """Scale each convolution's weights so that its output on `inputs` has a root mean square of 1, or of
    `sizes` for layers whose names end so.

    Trained networks are like that. With PyTorch's initial weights a signal fades in a deep network to values
    that fp16 and int8 round to zero, which leaves nothing to compare. Layers are settled in running order,
    each on the outputs of the settled ones before it. Means are kept: without them, as in batch norm before
    training, rounding errors would grow by a fifth per layer.
    """
    import torch
    from torch import nn

    wanted: dict[torch.nn.Module, float] = {}

    def scaled(layer: torch.nn.Module, _: object, made: torch.Tensor) -> torch.Tensor:
        size = made.square().mean().sqrt() / wanted[layer]
        for weights in layer.parameters():
            weights.div_(size)
        return made / size

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
                given = (value for end, value in (sizes or {}).items() if name.endswith(end))
                wanted[layer] = next(given, 1.0)
                hooks.callback(layer.register_forward_hook(scaled).remove)
        network.eval()(*inputs)
