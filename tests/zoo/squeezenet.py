"""SqueezeNet: fire modules, each joining a 1x1 and a 3x3 convolution of a squeezed picture."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Fire(nn.Module):
    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1 = nn.Conv2d(squeezed, expanded, 1)
        self.expand3 = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.expand1(x)), F.relu(self.expand3(x))), 1)


class SqueezeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2),
            Fire(32, 8, 32),
            Fire(64, 8, 32),
            nn.MaxPool2d(3, 2),
            Fire(64, 16, 64),
        )
        self.classify = nn.Conv2d(128, 10, 1)

    def forward(self, image: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(F.relu(self.classify(self.features(image))), 1).flatten(1)


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return SqueezeNet(), (torch.randn(1, 3, 63, 63),)
