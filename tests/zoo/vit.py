"""A vision transformer that calls PyTorch's fused attention; `written` computes the same in plain steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        return x.reshape(batch, count, self.heads, width // self.heads).transpose(1, 2)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attend(self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x)))
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class WrittenAttention(Attention):
    """Batched matrix products of three dimensions, which XNNPACK takes."""

    def split(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        return super().split(x).reshape(batch * self.heads, count, width // self.heads)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = torch.bmm(query * query.shape[-1] ** -0.5, key.transpose(1, 2)).softmax(-1)
        return torch.bmm(weights, value).reshape(-1, self.heads, *query.shape[1:])


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, attention: type[Attention]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention(width, heads)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, attention: type[Attention] = Attention, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 65, width))
        self.layer = Layer(width, 2, attention)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.places
        return self.head(self.norm(self.layer(x))[:, 0])


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Vit(), (torch.randn(1, 3, 64, 64),)


def written() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Vit(WrittenAttention), (torch.randn(1, 3, 64, 64),)
