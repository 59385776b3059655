"""MobileNetV3 blocks: inverted residuals with hardswish, and squeeze-and-excite through a hardsigmoid."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Excite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 4, 1)
        self.expand = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(scale)


class Block(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        width = 4 * channels
        self.widen = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width, bias=False),
            nn.BatchNorm2d(width),
            nn.Hardswish(),
        )
        self.excite = Excite(width)
        self.narrow = nn.Sequential(nn.Conv2d(width, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(self.excite(self.depthwise(self.widen(x))))


class MobileNet(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.Hardswish()
        )
        self.blocks = nn.Sequential(Block(channels, 3), Block(channels, 5))
        self.head = nn.Linear(channels, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(image)), 1).flatten(1))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return MobileNet(), (torch.randn(1, 3, 64, 64),)
