"""A small Llama with ExecuTorch's custom operators for attention and cache, as `export_llm` can make it."""

from __future__ import annotations

from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa
from torch import nn

from model_profiling.models.llama.model import TinyLlama


class CustomLlama(TinyLlama):
    def with_attention(self, model: nn.Module) -> nn.Module:
        return sdpa.replace_sdpa_with_custom_op(custom_kv_cache.replace_kv_cache_with_custom_kv_cache(model))


def small() -> CustomLlama:
    return CustomLlama(layers=1, prompt=16, context=32)
