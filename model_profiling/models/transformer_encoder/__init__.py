"""A transformer encoder for text, with attention over all tokens at once."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "transformer_encoder",
    f"{__name__}.model:TransformerEncoderModel",
    inputs=["1x128 int64"],
    description="6 layers of 384 channels and 6 heads over 128 tokens; weights seeded at random",
    options=[
        ModelOption("tokens", 128, "length of the text, up to 512"),
        ModelOption("layers", 6, "how many"),
    ],
)
