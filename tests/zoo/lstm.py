"""An LSTM over a few steps: many operators, each next to nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tagger(nn.Module):
    def __init__(self, features: int = 16, width: int = 48) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, width, batch_first=True)
        self.head = nn.Linear(width, 6)

    def forward(self, sequence: Tensor) -> Tensor:
        states, _ = self.lstm(sequence)
        return self.head(states)


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Tagger(), (torch.randn(1, 6, 16),)
