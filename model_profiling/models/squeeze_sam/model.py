"""An interactive segmentation network in the style of SqueezeSAM, in plain PyTorch.

This is our own network without the published weights: its times represent that kind of model, its masks mean
nothing. From "SqueezeSAM: User-Friendly Mobile Interactive Segmentation" (Varadarajan et al., 2023): clicks
and boxes drawn as two more channels of the image (early fusion), a patch embedding of 2x2 pixels, a U-Net of
eight levels with the published widths (but 160 for 164, whole vectors of 16), and at its bottom a small
transformer in which tokens for three masks and their quality exchange information with the image. Different
here: batch norm comes before the activation and is folded into the convolutions; transposed convolutions
replace linear layers with reordering; masks are returned at half the image's size, at which they are
computed.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from model_profiling.core.errors import InputError
from model_profiling.models.base import EagerModelBase, settle

WIDTHS = (64, 128, 128, 128, 128, 160, 256, 256)
PATCH = 2
PROMPTS = 2
MASKS = 3
HEADS = 8
HIDDEN = 256
DEPTH = 2
SMALLEST = PATCH * 2 ** (len(WIDTHS) - 1)


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


def double_convolution(inside: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, out, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1),
        nn.ReLU(),
    )


class TwoWayLayer(nn.Module):
    """Tokens attend to each other, then to the image; the image attends to the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.among_tokens, self.to_image, self.to_tokens = (Attention(width, HEADS) for _ in range(3))
        self.feed_forward = FeedForward(width, HIDDEN)
        self.norms = nn.ModuleList(Norm(width) for _ in range(4))

    def forward(self, tokens: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.norms[0](tokens + self.among_tokens(tokens, tokens))
        tokens = self.norms[1](tokens + self.to_image(tokens, image))
        tokens = self.norms[2](tokens + self.feed_forward(tokens))
        return tokens, self.norms[3](image + self.to_tokens(image, tokens))


class TokenTransformer(nn.Module):
    """At the coarsest level: tokens for what the masks look for, and features informed by them."""

    tokens: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("tokens", torch.randn(1, 1 + MASKS, width))
        self.layers = nn.ModuleList(TwoWayLayer(width) for _ in range(DEPTH))
        self.last = Attention(width, HEADS)
        self.norm = Norm(width)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        _, width, height, breadth = features.shape
        image = features.reshape(1, width, height * breadth).permute(0, 2, 1)
        tokens = self.tokens
        for layer in self.layers:
            tokens, image = layer(tokens, image)
        tokens = self.norm(tokens + self.last(tokens, image))
        return tokens, image.permute(0, 2, 1).reshape(1, width, height, breadth)


class Up(nn.Module):
    """Double height and width, and join with the features of the same level on the way down."""

    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(inside, inside // 2, 2, stride=2)
        self.convolve = double_convolution(inside // 2 + out, out)

    def forward(self, features: Tensor, skipped: Tensor) -> Tensor:
        enlarged = nn.functional.relu(self.enlarge(features))
        joined: Tensor = self.convolve(torch.cat((skipped, enlarged), 1))
        return joined


class SqueezeSAMNetwork(nn.Module):
    """From an image and the user's prompts (a channel with discs at the clicks, a channel with the box) to
    the logits of three masks and an estimate of each one's quality."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3 + PROMPTS, WIDTHS[0], PATCH, stride=PATCH)
        before = (WIDTHS[0], *WIDTHS[:-1])
        self.down = nn.ModuleList(
            double_convolution(inside, out) for inside, out in zip(before, WIDTHS, strict=True)
        )
        self.pool = nn.MaxPool2d(2)
        self.transformer = TokenTransformer(WIDTHS[-1])
        upwards = WIDTHS[::-1]
        self.up = nn.ModuleList(Up(inside, out) for inside, out in pairwise(upwards))
        self.to_masks = nn.Linear(WIDTHS[-1], WIDTHS[0])
        self.quality = nn.Sequential(nn.Linear(WIDTHS[-1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, MASKS))

    def forward(self, image: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
        levels = [self.down[0](self.embed(torch.cat((image, prompts), 1)))]
        for level in self.down[1:]:
            levels.append(level(self.pool(levels[-1])))
        tokens, features = self.transformer(levels.pop())
        for up in self.up:
            features = up(features, levels.pop())
        _, width, height, breadth = features.shape
        wanted = self.to_masks(tokens[:, 1:])
        masks = torch.bmm(wanted, features.reshape(1, width, height * breadth))
        return masks.reshape(1, MASKS, height, breadth), self.quality(tokens[:, :1]).reshape(1, MASKS)


def drawn_prompts(size: int) -> Tensor:
    """A click in the middle, as a disc, and no box: the whole image is inside."""
    places = torch.arange(size) - size // 2
    disc = places.reshape(-1, 1) ** 2 + places.reshape(1, -1) ** 2 <= 25
    return torch.stack((disc.float(), torch.ones(size, size))).unsqueeze(0)


class SqueezeSAMStyle(EagerModelBase):
    def __init__(self, size: int = 512) -> None:
        if size % SMALLEST:
            raise InputError(
                f"squeeze_sam does not take images of {size}x{size}", f"give a multiple of {SMALLEST}"
            )
        self.size = size

    def get_eager_model(self) -> nn.Module:
        network = SqueezeSAMNetwork()
        settle(network, (torch.randn(1, 3, 512, 512), drawn_prompts(512)), {"enlarge": 0.5})
        return network

    def get_example_inputs(self) -> tuple[object, ...]:
        return (torch.randn(1, 3, self.size, self.size), drawn_prompts(self.size))
