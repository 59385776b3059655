"""ShuffleNetV2 units: half of the channels pass by; after the join the channels of both halves mix."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def shuffled(x: Tensor) -> Tensor:
    batch, channels, high, wide = x.shape
    return x.view(batch, 2, channels // 2, high, wide).transpose(1, 2).reshape(batch, channels, high, wide)


def branch(inputs: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False),
        nn.BatchNorm2d(width),
        nn.Conv2d(width, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


class Unit(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = branch(channels // 2, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        past, through = x.chunk(2, 1)
        return shuffled(torch.cat((past, self.branch(through)), 1))


class ShuffleNet(nn.Module):
    def __init__(self, channels: int = 48) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.units = nn.Sequential(Unit(channels), Unit(channels))
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.units(self.pool(self.stem(image))).mean((2, 3)))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return ShuffleNet(), (torch.randn(1, 3, 64, 64),)
