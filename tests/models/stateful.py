"""Models whose executions put out something else each time: one that remembers, one that draws lots."""

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


class Drawing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(1, 4)


class RandomModel(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        return Drawing()

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.ones(1, 4),)
