"""A model with one of nearly every operator that XNNPACK takes, for aligning events with nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Operators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2, padding=1)
        self.slope = nn.PReLU(8)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        sloped = self.slope(functional.elu(functional.leaky_relu(self.grouped(self.first(image)))))
        gated = torch.sigmoid(functional.gelu(sloped)) * torch.tanh(sloped)
        highest, mean = functional.max_pool2d(gated, 2), functional.avg_pool2d(gated, 2)
        spread = torch.maximum(highest, mean) - torch.minimum(highest, mean)
        resized = functional.interpolate(spread, scale_factor=2, mode="bilinear", align_corners=False)
        joined = torch.cat([functional.pad(resized, (1, 1, 1, 1))[:, :, 1:-1, 1:-1], gated, sloped], 1)
        rooted = torch.log(torch.exp(-torch.rsqrt(torch.sqrt(torch.abs(joined) + 1) + 1)) + 2)
        limited = torch.clamp(torch.floor(rooted) + torch.ceil(rooted), 0, 1)
        rows = torch.square(limited * limited).permute(0, 2, 3, 1).reshape(1, -1, 24)
        mixed = torch.bmm(torch.softmax(torch.bmm(rows, rows.transpose(1, 2)) / 4, -1), rows)
        waves = torch.sin(mixed) + torch.cos(mixed)
        return functional.hardtanh(waves.mean(1)), waves.clone()


def operators() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Operators().eval(), (torch.randn(1, 3, 8, 8),)
