"""A MobileViT block: convolutions, then attention among the same pixel of every patch, then a join."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PATCH = 2


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, count, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query @ key.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, count, width)
        x = x + self.out(mixed)
        return x + self.narrow(F.silu(self.widen(self.norm2(x))))


class MobileVit(nn.Module):
    def __init__(self, channels: int = 16, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 2, 1)
        self.local = nn.Conv2d(channels, channels, 3, padding=1)
        self.enter = nn.Conv2d(channels, width, 1)
        self.layer = Layer(width, heads=2)
        self.leave = nn.Conv2d(width, channels, 1)
        self.join = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        x = F.silu(self.stem(image))
        local = self.enter(F.silu(self.local(x)))
        batch, width, high, wide = local.shape
        rows, columns = high // PATCH, wide // PATCH
        patches = local.reshape(batch * width * rows, PATCH, columns, PATCH).transpose(1, 2)
        patches = patches.reshape(batch, width, rows * columns, PATCH * PATCH).transpose(1, 3)
        mixed = self.layer(patches.reshape(batch * PATCH * PATCH, rows * columns, width))
        mixed = mixed.reshape(batch, PATCH * PATCH, rows * columns, width).transpose(1, 3)
        mixed = mixed.reshape(batch * width * rows, columns, PATCH, PATCH).transpose(1, 2)
        picture = F.silu(self.leave(mixed.reshape(batch, width, high, wide)))
        return F.silu(self.join(torch.cat((x, picture), 1)))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return MobileVit(), (torch.randn(1, 3, 32, 32),)
