"""Calls that XNNPACK leaves outside and that other code replaces, as users write them: branches of one model,
so that one export tries them all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import glu as gated

Compute = Callable[..., Tensor]


class Branch(nn.Module):
    """A function of the input, and of a module of its own if it has one."""

    def __init__(self, compute: Compute, own: nn.Module | None) -> None:
        super().__init__()
        self.compute, self.own = compute, own

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x) if self.own is None else self.compute(x, self.own)


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


Case = tuple[Compute, Callable[[], nn.Module]]
CASES: tuple[Compute | Case, ...] = (
    chunks,
    last_chunks,
    lambda x: torch.split(x, (3, 4, 1), 1)[1] * 2.0,
    steps,
    # As in transformers' EfficientNet: a window larger than the image.
    (lambda x, pool: pool(x), lambda: nn.AvgPool2d(1280, ceil_mode=True)),
    lambda x: F.avg_pool2d(input=x, kernel_size=3, stride=1, padding=1),
    lambda x: torch.nn.functional.hardsigmoid(x) * x,
    F.elu,
    lambda x: F.elu(x, alpha=0.5),
    lambda x: x.sum((2, 3)) - 1.0,
    lambda x: torch.amax(x, (-2, -1)),
    lambda x: torch.roll(x, shifts=(-3, 2), dims=(1, 2)),
    lambda x: x.mean((2, 3)),
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
    (lambda x, norm: norm(x), lambda: nn.GroupNorm(2, 8)),
    (lambda x, recurrent: recurrent(x), Recurrent),
    (lambda x, chosen: chosen(x), Chosen),
    root_mean_square,
)
HALF_CASES: tuple[Compute | Case, ...] = (
    lambda x: F.glu(x.tanh(), dim=1) + gated(x, 1),
    torch.nn.functional.glu,
    (gate, lambda: nn.GLU(1)),
    F.gelu,
)


class Branches(nn.Module):
    def __init__(self, cases: tuple[Compute | Case, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        made = (case if isinstance(case, tuple) else (case, lambda: None) for case in cases)
        self.first = nn.Conv2d(8, 8, 1)
        self.branches = nn.ModuleList([Branch(compute, own()) for compute, own in made])

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        x = self.first(picture)
        return tuple(branch(x) for branch in self.branches)


def whole() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(CASES), (torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8),)


def half() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(HALF_CASES), (torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8),)
