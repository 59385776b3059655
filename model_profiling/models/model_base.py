"""The interface of a model under its other name: `from ..model_base import EagerModelBase`."""

from model_profiling.models.base import EagerModelBase

__all__ = ["EagerModelBase"]
