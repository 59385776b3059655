"""Language models as programs: the methods for a prompt and for a token, and what an application asks for."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from model_profiling.core.errors import InputError
from model_profiling.models.base import EagerModelBase, ModelMethod

if TYPE_CHECKING:
    from model_profiling.models.base import Constants, DynamicShapes, ExampleInputs

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
