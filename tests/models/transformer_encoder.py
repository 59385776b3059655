"""A transformer encoder in plain PyTorch, after "Attention Is All You Need" (Vaswani et al., 2017), with the
norm before each part, in the sizes of small sentence encoders.

Written for XNNPACK: everything after the token table is one delegate in every dtype. It uses ReLU, because
GELU has no fp16 there; attention as matrix products, because PyTorch's single call adds masks; and a norm
made of operators that XNNPACK has.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase

VOCABULARY = 8192
LONGEST = 512
WIDTH = 384
HEADS = 6
HIDDEN = 4 * WIDTH


class Norm(nn.Module):
    """Normalizes each token to mean 0 and deviation 1; the following linear layer can absorb scale and shift.

    The means are matrix products, because XNNPACK has no mean over the last dimension alone. Neither they nor
    the division are ever quantized: in int8 the norm is still computed in floats.
    """

    average: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("average", torch.full((1, width, 1), 1 / width))

    def forward(self, x: Tensor) -> Tensor:
        around = x - torch.bmm(x, self.average)
        variance = torch.bmm(torch.square(around), self.average)
        return around / torch.sqrt(torch.clamp(variance, min=1e-5))


class Attention(nn.Module):
    """Attention of `x` to `others`; the usual 1 / sqrt(head size) is in the query's weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        with torch.no_grad():
            self.query.weight /= math.sqrt(self.size)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        count, width = x.shape[1:]
        query = self.query(x).view(count, self.heads, self.size).permute(1, 0, 2)
        key = self.key(others).view(-1, self.heads, self.size).permute(1, 2, 0)
        value = self.value(others).view(-1, self.heads, self.size).permute(1, 0, 2)
        mixed = torch.bmm(torch.softmax(torch.bmm(query, key), -1), value)
        taken: Tensor = self.out(mixed.permute(1, 0, 2).reshape(1, count, width))
        return taken


class FeedForward(nn.Sequential):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(WIDTH), Norm(WIDTH)
        self.attention = Attention(WIDTH, HEADS)
        self.feed_forward = FeedForward(WIDTH, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.attention(normed, normed)
        fed: Tensor = self.feed_forward(self.norm2(x))
        return x + fed


class TransformerEncoder(nn.Module):
    """From token numbers to a vector per token."""

    places: Tensor

    def __init__(self, tokens: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.register_buffer("places", torch.randn(LONGEST, WIDTH)[:tokens].reshape(1, tokens, WIDTH))
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
        self.norm = Norm(WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.norm(self.layers(self.table(tokens) + self.places))
        return vectors


class TransformerEncoderModel(EagerModelBase):
    def __init__(self, tokens: int = 128, layers: int = 6) -> None:
        self.tokens, self.layers = tokens, layers

    def get_eager_model(self) -> nn.Module:
        return TransformerEncoder(self.tokens, self.layers)

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randint(0, VOCABULARY, (1, self.tokens)),)


def small() -> TransformerEncoderModel:
    return TransformerEncoderModel(tokens=16, layers=1)
