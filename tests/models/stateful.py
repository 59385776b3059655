"""A model that remembers: each execution puts out something else."""

from __future__ import annotations

import torch
from torch import nn

from model_profiling.models.base import EagerModelBase


class Counter(nn.Module):
    """Adds how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x + self.calls


class StatefulModel(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        return Counter()

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.ones(1, 4),)
