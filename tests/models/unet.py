"""A U-Net in plain PyTorch, after "U-Net: Convolutional Networks for Biomedical Image Segmentation"
(Ronneberger et al., 2015), at half its widths and with padding, so that the output has the image's size."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase, settle

WIDTHS = (32, 64, 128, 256, 512)


def double_convolution(inside: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1),
        nn.ReLU(),
    )


class Up(nn.Module):
    """Double height and width, and join with the features of the same level on the way down."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(inside, out, 2, stride=2)
        self.convolve = double_convolution(2 * out, out)

    def forward(self, features: Tensor, skipped: Tensor) -> Tensor:
        joined: Tensor = self.convolve(torch.cat((skipped, self.enlarge(features)), 1))
        return joined


class UNet(nn.Module):
    """From an image to a score per class and pixel."""

    def __init__(self, channels: int = 3, classes: int = 2) -> None:
        super().__init__()
        before = (channels, *WIDTHS[:-1])
        self.down = nn.ModuleList(
            double_convolution(inside, out) for inside, out in zip(before, WIDTHS, strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        upwards = WIDTHS[::-1]
        self.up = nn.ModuleList(Up(inside, out) for inside, out in pairwise(upwards))
        self.head = nn.Conv2d(WIDTHS[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        levels = [self.down[0](image)]
        for level in self.down[1:]:
            levels.append(level(self.pool(levels[-1])))
        features = levels.pop()
        for up in self.up:
            features = up(features, levels.pop())
        scores: Tensor = self.head(features)
        return scores


class UNetModel(EagerModelBase):
    def __init__(self, size: int = 256) -> None:
        self.size = size

    def get_eager_model(self) -> nn.Module:
        network = UNet()
        settle(network, (torch.randn(1, 3, 128, 128),), {"enlarge": 0.5})
        return network

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(1, 3, self.size, self.size),)


def small() -> UNetModel:
    return UNetModel(size=32)
