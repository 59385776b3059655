"""A plain U-Net: 3x3 convolutions, pooling, transposed convolutions and long skips."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "unet",
    f"{__name__}.model:UNetModel",
    inputs=["1x3x256x256 float32"],
    description="U-Net for segmentation, four levels down from 32 channels; weights seeded at random",
    options=[ModelOption("size", 256, "side of the image, a multiple of 16")],
)
