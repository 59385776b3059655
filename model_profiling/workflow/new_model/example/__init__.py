"""A small picture classifier to start from. (Replace: say in a sentence what your model is.)"""

from model_profiling.models.registry import register_model

# Replace: `inputs` is what `sme2prof models` shows. Leave a dtype out with the reason, where there is one:
# not_supported={"int8": "its softmax needs more than 8 bits"}.
register_model(
    "new_model",
    f"{__name__}.model:NewModel",
    inputs=["1x3x96x96 float32"],
    description="a small picture classifier to start from",
)
