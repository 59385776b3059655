"""A three-convolution network: small enough to run under emulation, rich enough to show every category."""

from model_profiling.models.registry import register_model

register_model(
    "toy_cnn",
    f"{__name__}.model:ToyCNN",
    inputs=["1x3x224x224 float32"],
    description="three strided convolutions, pooling, one linear layer; the smoke test",
)
