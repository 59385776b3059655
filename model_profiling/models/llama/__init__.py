"""Language models of the Llama family, built from ExecuTorch's own classes, with the cache in buffers."""

from model_profiling.models.options import language_options
from model_profiling.models.registry import register_model

_INPUTS = ["1x32 int64", "1 int64"]

register_model(
    "tiny_llama",
    f"{__name__}.model:TinyLlama",
    inputs=_INPUTS,
    description="a language model for tests, small enough for emulation; weights seeded at random",
    options=language_options(2, prompt=64, context=128),
)
for _name, _cls, _layers, _size in (
    ("smollm2", "SmolLM2", 30, "SmolLM2 of 135 million parameters"),
    ("qwen3_0_6b", "Qwen3", 28, "Qwen3 of 0.6 billion parameters"),
    ("llama3_2_1b", "Llama32", 16, "Llama 3.2 of 1 billion parameters"),
):
    register_model(
        _name,
        f"{__name__}.model:{_cls}",
        inputs=_INPUTS,
        description=f"{_size}; weights seeded at random",
        options=language_options(_layers),
    )
