"""A small decoder-only language model with a key-value cache: one step, or a piece of a prompt."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "decoder_lm",
    f"{__name__}.model:DecoderModel",
    inputs=["1x1 int64", "1 int64", *["2x256x64 float32"] * 12],
    description="one step of a decoder of 6 layers, with a cache for 256 tokens; weights seeded at random",
    options=[
        ModelOption("tokens", 1, "tokens at once: 1 for a step, more for a part of a prompt"),
        ModelOption("context", 256, "tokens in the cache"),
        ModelOption("layers", 6, "how many"),
    ],
)
