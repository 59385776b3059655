"""A transformer encoder in plain PyTorch, after "Attention Is All You Need" (Vaswani et al., 2017), with the
norm before each part, in the sizes of small sentence encoders.

Written for XNNPACK: everything after the token table is one delegate in every dtype. It uses ReLU, because
GELU has no fp16 there; attention as matrix products, because PyTorch's single call adds masks; and a norm
made of operators that XNNPACK has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase
from model_profiling.models.squeeze_sam.model import Attention, FeedForward, Norm

VOCABULARY = 8192
LONGEST = 512
WIDTH = 384
HEADS = 6
HIDDEN = 4 * WIDTH


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
