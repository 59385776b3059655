"""A DistilBERT layer over token ids, with the mask of padding as an input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        return x.view(batch, count, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query / query.shape[-1] ** 0.5, key.transpose(2, 3))
        scores = scores.masked_fill(padding, torch.finfo(scores.dtype).min)
        mixed = torch.matmul(scores.softmax(-1), value).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.narrow(F.gelu(self.widen(x))))


class DistilBert(nn.Module):
    def __init__(self, width: int = 64, longest: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(500, width), nn.Embedding(longest, width)
        self.register_buffer("order", torch.arange(longest).unsqueeze(0))
        self.norm = nn.LayerNorm(width)
        self.layer = Layer(width, 2)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        count = tokens.shape[1]
        x = self.norm(self.words(tokens) + self.places(self.order[:, :count]))
        padding = (attention_mask == 0).view(tokens.shape[0], 1, 1, count)
        return self.head(F.relu(self.layer(x, padding)[:, 0]))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    mask = torch.ones(1, 48, dtype=torch.int64)
    mask[:, 40:] = 0
    return DistilBert(), (torch.randint(0, 500, (1, 48)), mask)
