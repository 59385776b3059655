"""A ResNet of the CIFAR kind: batch norm after each convolution, and a ReLU after each sum."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, blocks: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        stages: list[nn.Module] = []
        inputs = 16
        for outputs, stride in ((16, 1), (32, 2), (64, 2)):
            for index in range(blocks):
                stages.append(Block(inputs, outputs, stride if index == 0 else 1))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(64, 10)

    def forward(self, image: Tensor) -> Tensor:
        features = self.stages(F.relu(self.bn(self.stem(image))))
        return self.head(F.adaptive_avg_pool2d(features, 1).flatten(1))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return ResNet(), (torch.randn(1, 3, 32, 32),)
