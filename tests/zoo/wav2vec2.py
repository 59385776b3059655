"""Wav2Vec2: convolutions over raw audio, a grouped positional convolution whose weight is normed in each
inference, and an encoder layer; `plain` has that weight computed once."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        scores = torch.bmm(self.query(x) * x.shape[-1] ** -0.5, self.key(x).transpose(1, 2))
        x = self.norm1(x + self.out(torch.bmm(scores.softmax(-1), self.value(x))))
        return self.norm2(x + self.narrow(F.gelu(self.widen(x))))


class Wav2Vec2(nn.Module):
    def __init__(self, channels: int = 32, width: int = 64) -> None:
        super().__init__()
        self.conv0 = nn.Conv1d(1, channels, 10, stride=5, bias=False)
        self.norm0 = nn.GroupNorm(channels, channels)
        self.conv1 = nn.Conv1d(channels, channels, 3, stride=2, bias=False)
        self.conv2 = nn.Conv1d(channels, channels, 3, stride=2, bias=False)
        self.norm = nn.LayerNorm(channels)
        self.project = nn.Linear(channels, width)
        self.positional = weight_norm(nn.Conv1d(width, width, 16, padding=8, groups=4), dim=2)
        self.layer = Layer(width)

    def forward(self, audio: Tensor) -> Tensor:
        x = F.gelu(self.norm0(self.conv0(audio.unsqueeze(1))))
        x = F.gelu(self.conv2(F.gelu(self.conv1(x))))
        x = self.project(self.norm(x.transpose(1, 2)))
        places = self.positional(x.transpose(1, 2))[:, :, :-1]
        return self.layer(x + F.gelu(places).transpose(1, 2))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Wav2Vec2(), (torch.randn(1, 2000),)


def plain() -> tuple[nn.Module, tuple[Tensor, ...]]:
    made = Wav2Vec2()
    parametrize.remove_parametrizations(made.positional, "weight")
    return made, (torch.randn(1, 2000),)
