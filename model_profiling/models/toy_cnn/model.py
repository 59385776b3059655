"""The toy network in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase


class ToyNetwork(nn.Module):
    """Three 3x3 stride-2 convolutions with ReLU, global average pooling and a classifier."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in (32, 64, 128):
            layers += [nn.Conv2d(channels, width, kernel_size=3, stride=2, padding=1), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        pooled: Tensor = self.pool(self.features(image))
        logits: Tensor = self.classifier(torch.flatten(pooled, 1))
        return logits


class ToyCNN(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        return ToyNetwork()

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(1, 3, 224, 224),)
