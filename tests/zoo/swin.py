"""A Swin block: attention in shifted windows. As in many published versions, the mask of a shifted window and
the bias of relative places are computed anew in each inference, though neither sees the picture; `hoisted`
computes both once and keeps them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WINDOW, SHIFT, SIDE, HEADS = 4, 2, 16, 2


def windows(x: Tensor) -> Tensor:
    """Rows of pixels, a window after the other."""
    batch, high, wide, width = x.shape
    x = x.reshape(batch * high // WINDOW, WINDOW, wide // WINDOW, WINDOW * width).transpose(1, 2)
    return x.reshape(-1, WINDOW * WINDOW, width)


def joined(x: Tensor, high: int, wide: int) -> Tensor:
    width = x.shape[-1]
    x = x.reshape(-1, wide // WINDOW, WINDOW, WINDOW * width).transpose(1, 2)
    return x.reshape(-1, high, wide, width)


def relative_places() -> Tensor:
    steps = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
    apart = (steps[:, :, None] - steps[:, None, :]).permute(1, 2, 0) + (WINDOW - 1)
    return apart[..., 0] * (2 * WINDOW - 1) + apart[..., 1]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.table = nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS))
        self.register_buffer("places", relative_places().flatten())

    def bias(self) -> Tensor:
        pixels = WINDOW * WINDOW
        return self.table[self.places].reshape(1, pixels, pixels, HEADS).permute(0, 3, 1, 2)

    def mask(self, high: int, wide: int) -> Tensor:
        """What keeps pixels apart that only the shift made neighbours."""
        region = torch.zeros(1, high, wide, 1)
        count = 0
        edges = (slice(0, -WINDOW), slice(-WINDOW, -SHIFT), slice(-SHIFT, None))
        for rows in edges:
            for columns in edges:
                region[:, rows, columns, :] = count
                count += 1
        same = windows(region).squeeze(-1)
        return torch.where(same.unsqueeze(1) == same.unsqueeze(2), 0.0, -100.0).unsqueeze(1)

    def rolled(self, x: Tensor, by: int) -> Tensor:
        return torch.roll(x, (by, by), (1, 2))

    def heads(self, x: Tensor) -> Tensor:
        count, pixels, width = x.shape
        split = x.reshape(count, pixels, HEADS, width // HEADS).transpose(1, 2)
        return split.reshape(-1, pixels, width // HEADS)

    def forward(self, x: Tensor) -> Tensor:
        _, high, wide, width = x.shape
        rows = windows(self.rolled(self.norm1(x), -SHIFT))
        count, pixels, _ = rows.shape
        query, key, value = (
            self.heads(self.query(rows)),
            self.heads(self.key(rows)),
            self.heads(self.value(rows)),
        )
        scores = torch.bmm(query * (width // HEADS) ** -0.5, key.transpose(1, 2))
        scores = scores.reshape(count, HEADS, pixels, pixels)
        scores = scores + self.bias()
        scores = scores + self.mask(high, wide)
        weights = scores.softmax(-1).reshape(-1, pixels, pixels)
        mixed = torch.bmm(weights, value).reshape(count, HEADS, pixels, width // HEADS).transpose(1, 2)
        mixed = joined(self.out(mixed.reshape(count, pixels, width)), high, wide)
        x = x + self.rolled(mixed, SHIFT)
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class HoistedBlock(Block):
    """Bias and mask as buffers, made when the weights are there; rolled without a list of places."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        with torch.no_grad():
            self.register_buffer("kept_bias", super().bias().contiguous())
            self.register_buffer("kept_mask", super().mask(SIDE, SIDE).contiguous())

    def bias(self) -> Tensor:
        return self.kept_bias

    def mask(self, high: int, wide: int) -> Tensor:
        assert (high, wide) == (SIDE, SIDE)
        return self.kept_mask

    def rolled(self, x: Tensor, by: int) -> Tensor:
        x = torch.cat((x[:, -by:], x[:, :-by]), 1)
        return torch.cat((x[:, :, -by:], x[:, :, :-by]), 2)


class Swin(nn.Module):
    def __init__(self, block: type[Block] = Block, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.block = block(width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.block(self.patches(image).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Swin(), (torch.randn(1, 3, 4 * SIDE, 4 * SIDE),)


def hoisted() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Swin(HoistedBlock), (torch.randn(1, 3, 4 * SIDE, 4 * SIDE),)
