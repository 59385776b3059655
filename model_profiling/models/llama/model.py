"""ExecuTorch's Transformer in the sizes of known models, with attention of plain operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from model_profiling.core.errors import ExportError
from model_profiling.models.base import EagerLanguageModel
from model_profiling.models.options import NO_CACHE_OPERATORS, blaming

if TYPE_CHECKING:
    from model_profiling.models.base import Constants


_SIZES = ("dim", "n_layers", "n_heads", "n_kv_heads", "hidden_dim", "vocab_size")


def _sizes(*sizes: int, **more: object) -> Mapping[str, Any]:
    """The arguments of ExecuTorch's ModelArgs, the first in the order of `_SIZES`."""
    return {**dict(zip(_SIZES, sizes, strict=True)), **more}


class CalledWithPosition(nn.Module):
    """The Transformer, whose position is an input of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        scores: Tensor = self.model(tokens, {"input_pos": input_pos})
        return scores

    @contextmanager
    def cache_in_place(self) -> Iterator[None]:
        """During the block, attention writes and reads the cache where it is, by ExecuTorch's operators."""
        with blaming(NO_CACHE_OPERATORS, "leave --optimize out", ExportError):
            from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa
            from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401

        usual = [(part, dict(part._modules)) for part in self.modules()]
        try:
            for part in self.modules():
                if hasattr(part, "SDPA"):
                    part.SDPA = sdpa.SDPA(part.SDPA.dim, 0, 0, 0)
            sdpa.replace_sdpa_with_custom_op(self.model)
            custom_kv_cache.replace_kv_cache_with_custom_kv_cache(self.model)
            yield
        finally:
            for part, parts in usual:
                part._modules = parts


class Llama(EagerLanguageModel):
    """A model of ExecuTorch's Transformer class; `sizes` are its ModelArgs."""

    sizes: ClassVar[Mapping[str, Any]]
    bos: ClassVar[int]
    eos: ClassVar[tuple[int, ...]]

    def __init__(
        self,
        *,
        layers: int | None = None,
        prompt: int = 512,
        context: int = 2048,
        methods: int = 2,
    ) -> None:
        super().__init__(prompt=prompt, context=context, methods=methods)
        self.layers = layers or int(self.sizes["n_layers"])

    @property
    def facts(self) -> Constants:
        return {
            "get_vocab_size": int(self.sizes["vocab_size"]),
            "get_n_layers": self.layers,
            "get_bos_id": self.bos,
            "get_eos_ids": list(self.eos),
        }

    def get_eager_model(self) -> nn.Module:
        from executorch.examples.models.llama.llama_transformer import construct_transformer
        from executorch.examples.models.llama.model_args import ModelArgs

        sizes = {**self.sizes, "n_layers": self.layers}
        arguments = ModelArgs(
            **sizes,
            max_seq_len=self.prompt,
            max_context_len=self.context,
            use_kv_cache=True,
            enable_dynamic_shape=True,
        )
        model: nn.Module = construct_transformer(arguments)
        model = self.with_attention(model)
        # One mask for all layers, in numbers that are added to the scores: of 2048 tokens it is 16 MB.
        mask = torch.full((self.context, self.context), float("-inf")).triu(1)
        for part in model.modules():
            if isinstance(getattr(part, "mask", None), Tensor):
                part.register_buffer("mask", mask, persistent=False)
        return CalledWithPosition(model)

    def with_attention(self, model: nn.Module) -> nn.Module:
        """Put attention of plain operators in, which runs everywhere."""
        from executorch.examples.models.llama.source_transformation import sdpa

        return sdpa.replace_sdpa_with_simple_sdpa(model)


class TinyLlama(Llama):
    sizes = _sizes(128, 2, 4, 2, 256, 512)
    bos, eos = 1, (2,)

    def __init__(self, *, prompt: int = 64, context: int = 128, **options: Any) -> None:
        super().__init__(prompt=prompt, context=context, **options)


class SmolLM2(Llama):
    sizes = _sizes(576, 30, 9, 3, 1536, 49152, rope_theta=1e5)
    bos, eos = 0, (0,)


class Llama32(Llama):
    rope: ClassVar = {"rope_theta": 5e5, "use_scaled_rope": True, "rope_scale_factor": 32}
    sizes = _sizes(2048, 16, 32, 8, 8192, 128256, **rope)
    bos, eos = 128000, (128001, 128009)


class Qwen3(Llama):
    rope: ClassVar = {"norm_eps": 1e-6, "rope_theta": 1e6, "use_hf_rope": True}
    norm: ClassVar = {"head_dim": 128, "use_qk_norm": True, "qk_norm_before_rope": True}
    sizes = _sizes(1024, 28, 16, 8, 3072, 151936, **rope, **norm)
    bos, eos = 151643, (151643, 151645)
