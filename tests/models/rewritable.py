"""Calls that XNNPACK leaves outside and that other code replaces, as users write them: branches of one model,
so that one export tries them all."""

from __future__ import annotations

import torch
from models.replaceable import INPUT, Branches, of
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import glu as gated


def chunks(x: Tensor) -> Tensor:
    first, second, third = x.flatten(2)[:, :6].chunk(3, dim=1)
    return first * second + third


def last_chunks(x: Tensor) -> Tensor:
    left, right = torch.chunk(
        x + 1.0,
        chunks=2,
        dim=-1,
    )
    return left * right


def steps(x: Tensor) -> Tensor:
    first, second, _ = x.split(3, 2)
    return first - second


def selected(x: Tensor) -> Tensor:
    first, last = x[:, 0], x[:, :, -1]
    return first[:, :4] + last[:, :4]


def unbound(x: Tensor) -> Tensor:
    first, second = x[:, :2].unbind(1)
    return first - second


def many_widths(x: Tensor) -> Tensor:
    for width in (6, 4):
        left, right = x[:, :width].chunk(2, 1)
        x = torch.cat((left, right * 2.0), 1)
    return x


def gate(x: Tensor, glu: nn.Module) -> Tensor:
    y = glu(x.tanh())
    return F.silu(y) * y


def root_mean_square(x: Tensor) -> Tensor:
    rows = x.flatten(2)
    return rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-5)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(64, 4, batch_first=True, bidirectional=True)
        self.second = nn.GRU(8, 4, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.flatten(2))[0])[0]


class Chosen(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril() > 0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.mask, x, -1.0) + torch.where(self.mask, x * 2.0, x)


CASES = (
    *map(of, (
        chunks,
        last_chunks,
        lambda x: torch.split(x, (3, 4, 1), 1)[1] * 2.0,
        steps,
        lambda x: F.avg_pool2d(input=x, kernel_size=3, stride=1, padding=1),
        lambda x: torch.nn.functional.hardsigmoid(x) * x,
        lambda x: torch.roll(x, shifts=(-3, 2), dims=(1, 2)),
        lambda x: x.mean((2, 3)),
        lambda x: x[:, 1::2] + x[:, ::2],
        lambda x: x[:, :, ::3] * 2.0,
        lambda x: F.adaptive_avg_pool1d(x.flatten(2), 1) * F.adaptive_avg_pool1d(x.flatten(2), 7),
        lambda x: F.adaptive_avg_pool2d(x, (3, 12)),
        lambda x: (x * 2.0).softmax(1),
        lambda x: x.unsqueeze(1),
        lambda x: torch.relu(x).squeeze(0),
        selected,
        unbound,
        lambda x: (x - 1.0) ** 3,
        lambda x: torch.pow(x * x, 0.5),
        lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2),
        lambda x: torch.matmul(x, x.transpose(2, 3)),
        many_widths,
        lambda x: torch.cat((*x.chunk(2, 1), *x.tanh().chunk(2, 1)), 2),
        root_mean_square,
        lambda x: (1 - x) * 3 + x / 4,
    )),
    # As in transformers' EfficientNet: a window larger than the image.
    of(lambda x, pool: pool(x), pool=lambda: nn.AvgPool2d(1280, ceil_mode=True)),
    of(lambda x, norm: norm(x), norm=lambda: nn.GroupNorm(2, 8)),
    of(lambda x, recurrent: recurrent(x), recurrent=Recurrent),
    of(lambda x, chosen: chosen(x), chosen=Chosen),
)  # fmt: skip
HALF_CASES = (
    of(lambda x: F.glu(x.tanh(), dim=1) + gated(x, 1)),
    of(torch.nn.functional.glu),
    of(gate, glu=lambda: nn.GLU(1)),
    of(F.gelu),
    of(lambda x: (1.0 - x) * 0.5 + x / 3 - 2.0),
)


def whole() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(CASES), (INPUT,)


def half() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(HALF_CASES), (INPUT,)
