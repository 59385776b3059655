"""MobileNetV3-small: depthwise convolutions, squeeze-excite and hard-swish, as phones run them."""

from model_profiling.models.options import ModelOption
from model_profiling.models.registry import register_model

register_model(
    "mobilenet_v3_small",
    f"{__name__}.model:MobileNetV3Small",
    inputs=["1x3x224x224 float32"],
    description="the published image classifier, 2.5 million parameters, weights seeded at random",
    options=[
        ModelOption("hardsigmoid", 0, "1 for PyTorch's operator in fp16 too, where it leaves the delegate")
    ],
)
