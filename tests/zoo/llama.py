"""A Llama decoder layer over a prompt: RMS norm, rotary places, keys shared by heads, causal attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cosine + torch.cat((-x[..., half:], x[..., :half]), -1) * sine


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared * self.size, bias=False)
        self.value = nn.Linear(width, shared * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        batch, count, width = x.shape
        normed = self.norm1(x)
        query = self.query(normed).view(batch, count, self.heads, self.size).transpose(1, 2)
        key = self.key(normed).view(batch, count, self.shared, self.size).transpose(1, 2)
        value = self.value(normed).view(batch, count, self.shared, self.size).transpose(1, 2)
        query, key = turned(query, cosine, sine), turned(key, cosine, sine)
        key = key.repeat_interleave(self.heads // self.shared, 1)
        value = value.repeat_interleave(self.heads // self.shared, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, count, width))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, longest: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, width)
        self.layer = Layer(width, heads, shared=2)
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, 200, bias=False)
        size = width // heads
        rates = 1.0 / 10000 ** (torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(longest), rates).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        count = tokens.shape[1]
        x = self.layer(self.embed(tokens), self.cosine[:count], self.sine[:count])
        return self.head(self.norm(x))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Llama(), (torch.randint(0, 200, (1, 32)),)
