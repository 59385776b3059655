"""EdgeTAM's image encoder: a RepViT-M1 trunk in its deployed form, under a feature pyramid."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "edgetam_image_encoder",
    f"{__name__}.model:EdgeTAMImageEncoder",
    inputs=["1x3x1024x1024 float32"],
    description=(
        "EdgeTAM's RepViT-M1 trunk, re-parameterised, and FPN neck; weights random or from a checkpoint"
    ),
    not_supported={"int8": "with random weights, outputs are off by 0.16 of their range (accepted: 0.1)"},
    options=[
        ModelOption("size", 1024, "side of the image, a multiple of 32"),
        ModelOption("checkpoint", None, "edgetam.pt from a clone of EdgeTAM"),
    ],
)
