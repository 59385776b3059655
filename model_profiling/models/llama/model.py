"""ExecuTorch's Transformer in the sizes of known models.

Attention is of plain operators, unless `custom_ops=1` asks for ExecuTorch's own (`llama::custom_sdpa`,
`llama::update_cache`): they run only where the program that loads the model registers them.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from model_profiling.core.errors import InputError
from model_profiling.models.language import LanguageModel

if TYPE_CHECKING:
    from model_profiling.models.base import Constants


class CalledWithPosition(nn.Module):
    """The Transformer, whose position is an input of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, input_pos: Tensor) -> Tensor:
        scores: Tensor = self.model(tokens, {"input_pos": input_pos})
        return scores


class Llama(LanguageModel):
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
        custom_ops: int = 0,
        checkpoint: Path | None = None,
    ) -> None:
        super().__init__(prompt=prompt, context=context, methods=methods)
        if custom_ops not in (0, 1):
            raise InputError(f"custom_ops is {custom_ops}", "give 1 for custom operators, 0 for plain ones")
        self.layers = layers or int(self.sizes["n_layers"])
        self.custom_ops, self.checkpoint = bool(custom_ops), checkpoint

    @property
    def facts(self) -> Constants:
        return {
            "get_vocab_size": int(self.sizes["vocab_size"]),
            "get_n_layers": self.layers,
            "get_bos_id": self.bos,
            "get_eos_ids": list(self.eos),
            "use_sdpa_with_kv_cache": self.custom_ops,
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
        model = _with_attention(construct_transformer(arguments), custom_ops=self.custom_ops)
        self._share_mask(model)
        if self.checkpoint is not None:
            _load(model, self.checkpoint)
        return CalledWithPosition(model)

    def _share_mask(self, model: nn.Module) -> None:
        """One mask for all layers, in numbers that are added to the scores: of 2048 tokens it is 16 MB."""
        mask = torch.full((self.context, self.context), float("-inf")).triu(1)
        for part in model.modules():
            if isinstance(getattr(part, "mask", None), Tensor):
                part.register_buffer("mask", mask, persistent=False)


def _with_attention(model: nn.Module, *, custom_ops: bool) -> nn.Module:
    from executorch.examples.models.llama.source_transformation import custom_kv_cache, sdpa

    if custom_ops:
        model = custom_kv_cache.replace_kv_cache_with_custom_kv_cache(model)
    change = sdpa.replace_sdpa_with_custom_op if custom_ops else sdpa.replace_sdpa_with_simple_sdpa
    changed: nn.Module = change(model)
    return changed


def _load(model: nn.Module, checkpoint: Path) -> None:
    fix = "give a checkpoint that ExecuTorch's export_llm takes; its convert_weights makes one"
    try:
        held = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)
        held = held.get("model", held)
        missing, _ = model.load_state_dict(held, strict=False)
    except (RuntimeError, OSError, AttributeError, pickle.UnpicklingError) as problem:
        said = str(problem).strip().splitlines()[:1]
        raise InputError(f"{checkpoint} cannot be loaded: {' '.join(said)}", fix) from problem
    lacking = [name for name in missing if name.endswith((".weight", ".bias"))]
    if lacking:
        raise InputError(f"{checkpoint} has no {lacking[0]} ({len(lacking)} tensors are missing)", fix)


class TinyLlama(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 128,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "hidden_dim": 256,
        "vocab_size": 512,
    }
    bos, eos = 1, (2,)

    def __init__(self, *, prompt: int = 64, context: int = 128, **options: Any) -> None:
        super().__init__(prompt=prompt, context=context, **options)


class SmolLM2(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 576,
        "n_layers": 30,
        "n_heads": 9,
        "n_kv_heads": 3,
        "hidden_dim": 1536,
        "vocab_size": 49152,
        "rope_theta": 1e5,
    }
    bos, eos = 0, (0,)


class Llama32(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 2048,
        "n_layers": 16,
        "n_heads": 32,
        "n_kv_heads": 8,
        "hidden_dim": 8192,
        "vocab_size": 128256,
        "rope_theta": 5e5,
        "use_scaled_rope": True,
        "rope_scale_factor": 32,
    }
    bos, eos = 128000, (128001, 128009)


class Qwen25(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 1536,
        "n_layers": 28,
        "n_heads": 12,
        "n_kv_heads": 2,
        "hidden_dim": 8960,
        "vocab_size": 151936,
        "norm_eps": 1e-6,
        "rope_theta": 1e6,
        "use_hf_rope": True,
        "attention_qkv_bias": True,
    }
    bos, eos = 151643, (151643, 151645)


class Qwen25Half(Qwen25):
    sizes: ClassVar[Mapping[str, Any]] = {
        **Qwen25.sizes,
        "dim": 896,
        "n_layers": 24,
        "n_heads": 14,
        "hidden_dim": 4864,
    }


class Qwen3(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 2048,
        "n_layers": 28,
        "n_heads": 16,
        "n_kv_heads": 8,
        "head_dim": 128,
        "hidden_dim": 6144,
        "vocab_size": 151936,
        "norm_eps": 1e-6,
        "rope_theta": 1e6,
        "use_hf_rope": True,
        "use_qk_norm": True,
        "qk_norm_before_rope": True,
    }
    bos, eos = 151643, (151643, 151645)


class Qwen3Half(Qwen3):
    sizes: ClassVar[Mapping[str, Any]] = {**Qwen3.sizes, "dim": 1024, "hidden_dim": 3072}


class Phi4Mini(Llama):
    sizes: ClassVar[Mapping[str, Any]] = {
        "dim": 3072,
        "n_layers": 32,
        "n_heads": 24,
        "n_kv_heads": 8,
        "hidden_dim": 8192,
        "vocab_size": 200064,
        "use_hf_rope": True,
        "partial_rotary_factor": 0.75,
    }
    bos, eos = 199999, (199999, 200020)
