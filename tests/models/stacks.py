"""Convolutions whose inferences take milliseconds, longer than a busy machine leaves a thread its core."""

from __future__ import annotations

import torch
from torch import nn


def stack(layers: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    body = nn.Sequential(*(nn.Conv2d(32, 32, 3, padding=1) for _ in range(layers))).eval()
    return body, (torch.randn(1, 32, 96, 96),)


def lower() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return stack(6)


def higher() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return stack(7)
