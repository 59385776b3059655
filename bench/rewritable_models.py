"""Small models, each with a call outside delegates that `sme2prof try` can rewrite, between convolutions.

python bench/zoo_campaign.py bench/rewritable_models.py:* --dtypes fp32,fp16,int8 --follow
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Tensor, ...]]


class Net(nn.Module):
    """1x1 convolutions of `channels`."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(16, channels, 1) for _ in range(4))


class Glu(Net):
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = F.glu(part(x), dim=1)
        return x.mean((2, 3))


class Chunk(Net):
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            first, second = part(x).chunk(2, dim=1)
            x = first * second
        return x.mean((2, 3))


class Roll(Net):
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = torch.roll(part(x), (3, 3), (2, 3))
        return x.mean((2, 3))


class Elu(Net):
    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = F.elu(part(x), alpha=0.5)
        return x.mean((2, 3))


def glu() -> Made:
    return Glu(32), (torch.randn(1, 16, 64, 64),)


def chunk() -> Made:
    return Chunk(32), (torch.randn(1, 16, 64, 64),)


def roll() -> Made:
    return Roll(), (torch.randn(1, 16, 64, 64),)


def elu() -> Made:
    return Elu(), (torch.randn(1, 16, 64, 64),)


MODELS: tuple[Callable[[], Made], ...] = (glu, chunk, roll, elu)
