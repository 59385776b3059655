"""A Whisper encoder: two 1-d convolutions over a spectrogram, fixed places, and attention over the frames."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoids(count: int, width: int) -> Tensor:
    slower = torch.exp(-torch.arange(width // 2) * (9.2103 / (width // 2 - 1)))
    angles = torch.arange(count).unsqueeze(1) * slower.unsqueeze(0)
    return torch.cat((angles.sin(), angles.cos()), 1)


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        return x.view(batch, count, self.heads, width // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        mixed = F.scaled_dot_product_attention(
            self.split(self.query(normed)), self.split(self.key(normed)), self.split(self.value(normed))
        )
        x = x + self.out(mixed.permute(0, 2, 1, 3).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Whisper(nn.Module):
    def __init__(self, mels: int = 40, width: int = 64, frames: int = 128) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.register_buffer("places", sinusoids(frames // 2, width))
        self.layer = Layer(width, 2)
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(spectrogram))))
        return self.norm(self.layer(x.permute(0, 2, 1) + self.places))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Whisper(), (torch.randn(1, 40, 128),)
