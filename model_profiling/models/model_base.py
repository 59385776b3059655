"""The model interface under the name used in ExecuTorch: `from ..model_base import EagerModelBase`."""

from model_profiling.models.base import EagerModelBase

__all__ = ["EagerModelBase"]
