"""A decoder-only language model in plain PyTorch, like the smallest Llama models: heads that share keys,
gated feed-forward layers, RMS norm; with learned positions, as in GPT-2.

The cache is passed as inputs, and only the new tokens' keys and values come out: the caller writes them into
its cache, a few kilobytes per step. The alternative, buffers inside the program, is worse:
XNNPACK has no operator that writes into a buffer, so each layer would be cut in two, and a program with a
memory may answer differently each time it is measured.

Written for XNNPACK: all that follows the token and position look-ups is one delegate in every dtype.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from model_profiling.models.base import EagerModelBase

VOCABULARY = 8192
WIDTH = 384
HEADS = 6
SHARED = 2
SIZE = WIDTH // HEADS
HIDDEN = 1024
FAR = 1e4


class Norm(nn.Module):
    """RMS norm without a scale, which the following linear layers can absorb.

    The mean is a matrix product, because XNNPACK has no mean over the last dimension alone. Neither it nor
    the division is ever quantized.
    """

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.full((1, WIDTH, 1), 1 / WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(torch.clamp(torch.bmm(torch.square(x), self.average), min=1e-5))


class Attention(nn.Module):
    """Attention of each new token to the cache and to the new tokens up to itself.

    The queries of heads that share a key are rows of one matrix, so nothing is repeated. Masking uses a
    minimum: in int8 an added -10000 would be quantized, and all scores would be lost in its range.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, SHARED * SIZE, bias=False) for _ in range(2))
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        with torch.no_grad():
            self.query.weight /= math.sqrt(SIZE)

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, seen: Tensor, causal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        group = HEADS // SHARED
        query = self.query(x).view(self.tokens, SHARED, group, SIZE).permute(1, 2, 0, 3)
        query = query.reshape(SHARED, group * self.tokens, SIZE)
        key = self.key(x).view(self.tokens, SHARED, SIZE).permute(1, 0, 2)
        value = self.value(x).view(self.tokens, SHARED, SIZE).permute(1, 0, 2)
        before = torch.minimum(torch.bmm(query, keys.permute(0, 2, 1)), seen)
        now = torch.minimum(torch.bmm(query, key.permute(0, 2, 1)), causal)
        weights = torch.softmax(torch.cat((before, now), -1), -1)
        context = keys.shape[1]
        mixed = torch.bmm(weights[:, :, :context], values) + torch.bmm(weights[:, :, context:], value)
        mixed = mixed.view(SHARED, group, self.tokens, SIZE).permute(2, 0, 1, 3)
        return self.out(mixed.reshape(1, self.tokens, HEADS * SIZE)), key, value


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        fed: Tensor = self.down(gate * torch.sigmoid(gate) * self.up(x))
        return fed


class Layer(nn.Module):
    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.attention = Attention(tokens)
        self.feed_forward = FeedForward()

    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, seen: Tensor, causal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        mixed, key, value = self.attention(self.norm1(x), keys, values, seen, causal)
        x = x + mixed
        fed: Tensor = self.feed_forward(self.norm2(x))
        return x + fed, key, value


class DecoderLM(nn.Module):
    """From new tokens, the position of the first, and each layer's cache (keys, then values) to the scores of
    the token after each, and the new cache entries."""

    offsets: Tensor
    seen: Tensor
    causal: Tensor

    def __init__(self, tokens: int, context: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(context, WIDTH)
        self.layers = nn.ModuleList(Layer(tokens) for _ in range(layers))
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("offsets", torch.arange(tokens))
        # Row p: at position p the cache holds p tokens.
        held = torch.arange(context).reshape(1, -1) < torch.arange(context).reshape(-1, 1)
        self.register_buffer("seen", torch.where(held, FAR, -FAR))
        causal = torch.where(torch.ones(tokens, tokens).tril() > 0, FAR, -FAR)
        self.register_buffer("causal", causal.repeat(HEADS // SHARED, 1).unsqueeze(0))

    def forward(self, tokens: Tensor, place: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        x = self.table(tokens) + self.places(place + self.offsets)
        seen = nn.functional.embedding(place, self.seen)
        made: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            x, *new = layer(x, cache[2 * number], cache[2 * number + 1], seen, self.causal)
            made += new
        return (self.head(self.norm(x)), *made)


def empty_cache(context: int, layers: int) -> list[Tensor]:
    return [torch.zeros(SHARED, context, SIZE) for _ in range(2 * layers)]


class DecoderModel(EagerModelBase):
    def __init__(self, tokens: int = 1, context: int = 256, layers: int = 6) -> None:
        self.tokens, self.context, self.layers = tokens, context, layers

    def get_eager_model(self) -> nn.Module:
        return DecoderLM(self.tokens, self.context, self.layers)

    def get_example_inputs(self) -> tuple[object, ...]:
        """Inputs in the middle of a text: the cache is half full."""
        place = min(self.context // 2, self.context - self.tokens)
        cache = empty_cache(self.context, self.layers)
        for held in cache:
            held[:, :place] = torch.randn(SHARED, place, SIZE)
        return (torch.randint(0, VOCABULARY, (1, self.tokens)), torch.tensor([place]), *cache)


def step() -> DecoderModel:
    return DecoderModel(context=32, layers=1)


def prompt() -> DecoderModel:
    return DecoderModel(tokens=8, context=32, layers=1)
