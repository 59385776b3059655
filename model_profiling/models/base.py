"""The interface a model implements to be exported and profiled."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from model_profiling.core.errors import InputError

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


# Language models as programs: the methods for a prompt and for a token, and what an application asks for.

PREFILL, DECODE, BOTH = "prefill", "decode", "forward"
EXAMPLE_LENGTH = 32


class EagerLanguageModel(EagerModelBase):
    """A causal language model that keeps its cache in buffers. Its module takes `tokens` (1xN) and
    `input_pos`, the position of the first of them, and gives the scores of the token after the last.

    The program has ExecuTorch's names in one of two layouts. By default `prefill` takes a prompt and `decode`
    one token, and both use the same cache. Then XNNPACK gets fixed shapes for `decode`: reshapes of varying
    shapes stay outside its delegates. With `methods=1`, `forward` takes either, like the programs of
    ExecuTorch's `export_llm`.
    """

    def __init__(self, *, prompt: int, context: int, methods: int = 2) -> None:
        if not 2 <= prompt <= context:
            raise InputError(
                f"a prompt of {prompt} tokens does not fit a cache for {context}",
                "give a prompt from 2 to context tokens",
            )
        if methods not in (1, 2):
            raise InputError(
                f"a language model has no layout with {methods} methods",
                f"give methods=2 ({PREFILL} and {DECODE}) or methods=1 ({BOTH})",
            )
        self.prompt, self.context, self.methods = prompt, context, methods

    @property
    @abstractmethod
    def facts(self) -> Constants:
        """What only the model knows, at least `get_vocab_size` and `get_n_layers`."""

    def get_example_inputs(self) -> ExampleInputs:
        return self._call(min(EXAMPLE_LENGTH, self.prompt), at=0)

    def get_dynamic_shapes(self) -> DynamicShapes:
        import torch

        return ({1: torch.export.Dim("length", max=self._bound())}, None)

    def _bound(self) -> int:
        """The longest length that is traced: a prime number, if one fits. It then divides no other size by
        chance, so that the program's shapes at other lengths can be told."""
        primes = (
            number
            for number in range(self.prompt, self.context + 1)
            if all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
        )
        return next(primes, self.prompt)

    def get_methods(self) -> Mapping[str, ModelMethod]:
        prompt = self.get_example_inputs()
        varying = ModelMethod(prompt, self.get_dynamic_shapes())
        if self.methods == 1:
            return {BOTH: varying}
        last = min(EXAMPLE_LENGTH, self.context - 1)
        return {PREFILL: varying, DECODE: ModelMethod(self._call(1, at=last))}

    def get_constant_methods(self) -> Constants:
        return {
            "get_max_seq_len": self.prompt,
            "get_max_context_len": self.context,
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache": False,
            "enable_dynamic_shape": True,
            **self.facts,
        }

    def _call(self, length: int, at: int) -> ExampleInputs:
        import torch

        vocabulary = self.facts["get_vocab_size"]
        assert isinstance(vocabulary, int)
        return torch.randint(0, vocabulary, (1, length)), torch.tensor([at])


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
