"""What `sme2prof` asks a model for: the module, and inputs that stand for its real use."""

from __future__ import annotations

import torch
from torch import nn

from model_profiling.models.base import EagerModelBase


class NewModel(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        # Replace: your module. Random weights are enough for timing, but say nothing about accuracy.
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16384, 10))

    def get_example_inputs(self) -> tuple[object, ...]:
        # Replace: one real input, in the shape, dtype and range of real use.
        return (torch.rand(1, 3, 32, 32),)
