"""An interactive segmentation network in the style of SqueezeSAM: a U-Net that gets the user's clicks."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "squeeze_sam",
    f"{__name__}.model:SqueezeSAMStyle",
    inputs=["1x3x512x512 float32", "1x2x512x512 float32"],
    description=(
        "our own network in the style of SqueezeSAM, without its published weights; weights seeded at random"
    ),
    options=[ModelOption("size", 512, "side of the image, a multiple of 256")],
)
