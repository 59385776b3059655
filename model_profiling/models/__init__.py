"""The models that can be profiled: their registry, the interface they implement, and the zoo."""

from model_profiling.models.base import EagerModelBase
from model_profiling.models.catalog import list_models, load_model
from model_profiling.models.registry import register_model

__all__ = [
    "EagerModelBase",
    "list_models",
    "load_model",
    "register_model",
]
