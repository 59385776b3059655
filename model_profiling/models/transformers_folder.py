"""Causal language models of the package transformers, from a folder with `config.json`, and with its weights
if they are there. The package is loaded when the model is made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.core.errors import ExportError, InputError
from model_profiling.core.hints import pip_install
from model_profiling.core.records import read_json_object
from model_profiling.models.base import EagerLanguageModel
from model_profiling.models.options import (
    MARK,
    NO_CACHE_OPERATORS,
    Chosen,
    blaming,
    chosen_options,
    language_options,
)

if TYPE_CHECKING:
    import torch

    from model_profiling.models.base import Constants

CONFIG = "config.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_PROMPT, _CONTEXT = 512, 2048
_NO_CODE = {"trust_remote_code": False}
"""Else transformers asks on stdin, and with a yes runs Python code that lies in the folder."""

_OTHER_MODEL = "any other model needs a factory, file.py:factory"


def choose_folder(spec: str) -> tuple[Path, Chosen] | None:
    """The folder in `FOLDER` or `FOLDER@layers=2,...` and the chosen options; None if it has no config."""
    place, mark, options = spec.partition(MARK)
    folder = Path(place).expanduser()
    if not (folder / CONFIG).is_file():
        return None
    name = re.sub(r"\W", "_", folder.resolve().name)
    config = _read(folder)
    context = _context(config)
    layers = _number(config, "num_hidden_layers", "n_layer") or 1
    allowed = language_options(layers, _prompt(context), context)
    given = chosen_options(name, options, allowed) if mark else Chosen(name, {})
    return folder, given


def _read(folder: Path) -> dict[str, object]:
    return read_json_object(folder / CONFIG, "give the folder of a transformers model", follow=True)


def _number(config: Mapping[str, object], *keys: str) -> int | None:
    return next((value for key in keys if isinstance(value := config.get(key), int)), None)


def _context(config: Mapping[str, object]) -> int:
    return min(_CONTEXT, _number(config, "max_position_embeddings", "n_positions") or _CONTEXT)


def _prompt(context: int) -> int:
    """Leaves room for an answer, and for a bound that no other size is a multiple of."""
    return max(2, min(_PROMPT, context // 2))


class TransformersModel(EagerLanguageModel):
    def __init__(self, folder: Path, options: Mapping[str, int | Path]) -> None:
        given = {key: value for key, value in options.items() if isinstance(value, int)}
        context = given.get("context", _context(_read(folder)))
        prompt = given.get("prompt", _prompt(context))
        super().__init__(prompt=prompt, context=context, methods=given.get("methods", 2))
        self.folder, self.layers = folder, given.get("layers")

    @cached_property
    def config(self) -> Any:
        try:
            from transformers import AutoConfig
        except ImportError as problem:
            raise InputError(
                f"{self.folder} needs the Python package 'transformers', which is not installed",
                pip_install("transformers"),
            ) from problem
        cure = "correct it; a model with code of its own needs a factory, file.py:factory"
        with blaming(f"transformers cannot read {self.folder / CONFIG}", cure):
            config = AutoConfig.from_pretrained(self.folder, local_files_only=True, **_NO_CODE)
        if config.is_encoder_decoder:
            raise InputError(f"{self.folder} is an encoder with a decoder, not a causal model", _OTHER_MODEL)
        text = config.get_text_config()
        if self.layers:
            text.num_hidden_layers = self.layers
            if getattr(text, "layer_types", None):
                text.layer_types = text.layer_types[: self.layers]
        return config

    @property
    def facts(self) -> Constants:
        text = self.config.get_text_config()
        facts: dict[str, bool | int | list[int]] = {
            "get_vocab_size": int(text.vocab_size),
            "get_n_layers": int(text.num_hidden_layers),
        }
        if isinstance(text.bos_token_id, int):
            facts["get_bos_id"] = text.bos_token_id
        if text.eos_token_id is not None:
            ends = text.eos_token_id
            facts["get_eos_ids"] = [ends] if isinstance(ends, int) else list(ends)
        return facts

    def get_eager_model(self) -> torch.nn.Module:
        import torch

        config = self.config
        from transformers import AutoModelForCausalLM

        # "eager" is attention from plain operators. Others decompose into more, which XNNPACK does not take.
        how = {"attn_implementation": "eager", "dtype": torch.float32, **_NO_CODE}
        with blaming(f"transformers makes no causal language model from {self.folder}", _OTHER_MODEL):
            if any(file for pattern in _WEIGHTS for file in self.folder.glob(pattern)):
                model = AutoModelForCausalLM.from_pretrained(
                    self.folder, config=config, local_files_only=True, **how
                )
            else:
                model = AutoModelForCausalLM.from_config(config, **how)
            return _with_cache(model, self.context)


def _with_cache(model: Any, context: int) -> torch.nn.Module:
    """The model with a cache of fixed size in buffers."""
    import torch
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    class StaticCacheModel(TorchExportableModuleWithStaticCache):
        in_place = False
        start: Any = 0

        def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
            if self.in_place:
                self.start = input_pos[0].item()
                torch._check(self.start >= 0)
                torch._check(self.start + tokens.shape[1] <= context)
            for number, layer in enumerate(self.static_cache.layers):
                # The cache is a plain object: it must use the buffers of this module, or of its copy.
                layer.keys = getattr(self, f"key_cache_{number}")
                layer.values = getattr(self, f"value_cache_{number}")
                layer.cumulative_length = input_pos[0].clone()
            answer = self.model(
                input_ids=tokens,
                position_ids=(input_pos + torch.arange(tokens.shape[1])).unsqueeze(0),
                past_key_values=self.static_cache,
                use_cache=True,
                logits_to_keep=1,
            )
            scores: torch.Tensor = answer.logits[:, -1]
            return scores

        @contextmanager
        def cache_in_place(self) -> Iterator[None]:
            """During the block, attention writes and reads the cache where it is, by ExecuTorch's operators:
            they take tokens before heads, and need neither a mask nor keys repeated for groups of heads."""
            with blaming(NO_CACHE_OPERATORS, "leave --optimize out", ExportError):
                from executorch.extension.llm.custom_ops import custom_ops
                from transformers import AttentionInterface, AttentionMaskInterface

            config = self.model.config.get_text_config()
            usual = config._attn_implementation
            plain = {
                name: each for name, each in self.named_buffers() if re.match("(key|value)_cache_", name)
            }

            def attention(
                _: object, query: Any, key: Any, value: Any, mask: None, scaling: float, **more: Any
            ) -> tuple[Any, None]:
                del mask
                if any(more.get(name) is not None for name in ("sliding_window", "softcap", "s_aux")):
                    raise ExportError(
                        "the model's attention has a window, a cap or sinks",
                        "optimize it without: cache in place",
                    )
                query = query.transpose(1, 2)
                return custom_sdpa(query, key, value, self.start, None, 0.0, True, scaling), None

            def update(layer: Any, keys: Any, values: Any, *_: object) -> tuple[Any, Any]:
                for given, cache in ((keys, layer.keys), (values, layer.values)):
                    torch.ops.llama.update_cache(given.transpose(1, 2), cache, self.start)
                return layer.keys, layer.values

            del custom_ops  # which registers them
            custom_sdpa = torch.ops.llama.custom_sdpa
            AttentionInterface.register(_IN_PLACE, attention)
            AttentionMaskInterface.register(_IN_PLACE, lambda *_, **__: None)
            try:
                config._attn_implementation, self.in_place = _IN_PLACE, True
                for name, buffer in plain.items():
                    setattr(self, name, torch.zeros_like(buffer.transpose(1, 2).contiguous()))
                for layer in self.static_cache.layers:
                    layer.update = partial(update, layer)
                yield
            finally:
                config._attn_implementation, self.in_place = usual, False
                for name, buffer in plain.items():
                    setattr(self, name, buffer)
                for layer in self.static_cache.layers:
                    vars(layer).pop("update", None)

    model.generation_config.use_cache = True
    model.generation_config.cache_implementation = "static"
    made: torch.nn.Module = StaticCacheModel(model, 1, context, torch.device("cpu"))
    return made


_IN_PLACE = "sme2prof_in_place"
