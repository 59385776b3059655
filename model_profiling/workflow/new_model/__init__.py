"""Registers new_model, so that every command finds it by name."""

from model_profiling.models.registry import register_model

register_model("new_model", f"{__name__}.model:NewModel")
