"""SegFormer: overlapping patches, attention over a reduced picture, a depthwise convolution in the MLP, and
stages brought to one size before they are joined."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Stage(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, reduction: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(inputs, width, 2 * stride - 1, stride, stride - 1)
        self.norm0, self.norm1, self.norm2 = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.reduce = nn.Conv2d(width, width, reduction, reduction)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)

    def attend(self, x: Tensor, high: int, wide: int) -> Tensor:
        picture = x.transpose(1, 2).reshape(x.shape[0], -1, high, wide)
        fewer = self.reduce(picture).flatten(2).transpose(1, 2)
        scores = torch.bmm(self.query(x), self.key(fewer).transpose(1, 2)) * x.shape[-1] ** -0.5
        return self.out(torch.bmm(scores.softmax(-1), self.value(fewer)))

    def mix(self, x: Tensor, high: int, wide: int) -> Tensor:
        x = self.widen(x)
        picture = x.transpose(1, 2).reshape(x.shape[0], -1, high, wide)
        return self.narrow(F.gelu(self.depthwise(picture).flatten(2).transpose(1, 2)))

    def forward(self, image: Tensor) -> Tensor:
        picture = self.patches(image)
        batch, width, high, wide = picture.shape
        x = self.norm0(picture.flatten(2).transpose(1, 2))
        x = x + self.attend(self.norm1(x), high, wide)
        x = x + self.mix(self.norm2(x), high, wide)
        return x.transpose(1, 2).reshape(batch, width, high, wide)


class Segformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Stage(3, 16, 4, 4), Stage(16, 32, 2, 2)
        self.equal1, self.equal2 = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 32, 1)
        self.fuse, self.classify = nn.Conv2d(64, 32, 1, bias=False), nn.Conv2d(32, 5, 1)
        self.bn = nn.BatchNorm2d(32)

    def forward(self, image: Tensor) -> Tensor:
        large = self.first(image)
        small = self.second(large)
        grown = F.interpolate(self.equal2(small), size=large.shape[2:], mode="bilinear", align_corners=False)
        return self.classify(F.relu(self.bn(self.fuse(torch.cat((grown, self.equal1(large)), 1)))))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Segformer(), (torch.randn(1, 3, 64, 64),)
