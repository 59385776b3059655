"""ConvNeXt blocks: a 7x7 depthwise convolution, then a layer norm and an MLP over the channels put last."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.depthwise(x).permute(0, 2, 3, 1)
        rows = self.narrow(F.gelu(self.widen(self.norm(rows))))
        return x + (self.scale * rows).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(image)).mean((2, 3))))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return ConvNeXt(), (torch.randn(1, 3, 64, 64),)
