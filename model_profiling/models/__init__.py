"""The models that can be profiled: their registry, the interface they implement, and the zoo."""

from model_profiling.models.base import EagerModelBase
from model_profiling.models.catalog import add_to_executorch, list_models, load_model
from model_profiling.models.registry import register_model

patch_executorch_model_registry = add_to_executorch

__all__ = [
    "EagerModelBase",
    "add_to_executorch",
    "list_models",
    "load_model",
    "patch_executorch_model_registry",
    "register_model",
]
