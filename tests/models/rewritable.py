"""Calls that XNNPACK leaves outside and that other code replaces, as users write them; and calls like them
that must stay. Each is a branch of one model, so that one export tries them all."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import glu as gated


class Chunks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, second, third = x.flatten(2)[:, :6].chunk(3, dim=1)
        return first * second + third


class LastChunks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        left, right = torch.chunk(
            x + 1.0,
            chunks=2,
            dim=-1,
        )
        return left * right


class Splits(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.split(x, (3, 4, 1), 1)[1] * 2.0


class Steps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, second, _ = x.split(3, 2)
        return first - second


class Pooled(nn.Module):
    """As in transformers' EfficientNet: a window larger than the image."""

    def __init__(self) -> None:
        super().__init__()
        self.pooler = nn.AvgPool2d(1280, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.pooler(x)


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(input=x, kernel_size=3, stride=1, padding=1)


class Hard(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.hardsigmoid(x) * x


class Elu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x)


class ScaledElu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, alpha=0.5)


class Total(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum((2, 3)) - 1.0


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.amax(x, (-2, -1))


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(x, shifts=(-3, 2), dims=(1, 2))


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


class Softmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2.0).softmax(1)


class Unsqueezed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1)


class Squeezed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (
            torch.relu(x)
            .squeeze(0)
        )  # fmt: skip


class Selected(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, last = x[:, 0], x[:, :, -1]
        return first[:, :4] + last[:, :4]


class Unbound(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, second = x[:, :2].unbind(1)
        return first - second


class Cube(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - 1.0) ** 3


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.pow(x * x, 0.5)


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(2) @ x.flatten(2).transpose(1, 2)


class Heads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, x.transpose(2, 3))


class ManyWidths(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for width in (6, 4):
            left, right = x[:, :width].chunk(2, 1)
            x = torch.cat((left, right * 2.0), 1)
        return x


class Glu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x.tanh(), dim=1) + gated(
            x,
            1,
        )


class GluLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.glu(x)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.act = nn.GLU(1), nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.gate(x.tanh())
        return self.act(y) * y


class Grouped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(64, 4, batch_first=True, bidirectional=True)
        self.second = nn.GRU(8, 4, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x.flatten(2))[0])[0]


class RootMeanSquare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(2)
        return rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + 1e-5)


class Chosen(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(8, 8).tril() > 0)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.mask, x, -1.0) + torch.where(self.mask, x * 2.0, x)


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((*x.chunk(2, 1), *x.tanh().chunk(2, 1)), 2)


# As they must stay, or as only a person can change them.


class PartOfTheImage(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 3, ceil_mode=True)


class ChannelSum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True)


class ChannelAmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(1)


class InALoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.cat((x.chunk(2, 1)[0], (x * 2.0).chunk(2, 1)[1]), 1)
        return x


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x.unsqueeze_(0)
        return x


class Broadcast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ x[:, :1].transpose(2, 3)


def _cubed(x: Tensor) -> Tensor:
    return x**3


class Helped(nn.Module):
    """The trace has the line that calls the function, not the function's own."""

    def forward(self, x: Tensor) -> Tensor:
        return _cubed(x)


class Layered(nn.Module):
    """The line calls the container, not the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(8, 8, 1), nn.AvgPool2d(8, ceil_mode=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


CASES = (
    Chunks, LastChunks, Splits, Steps, Pooled, Padded, Hard, Elu, ScaledElu, Total, Largest, Rolled, Mean,
    Softmax, Unsqueezed, Squeezed, Selected, Unbound, Cube, Root, Product, Heads, ManyWidths, Twice,
    Grouped, Recurrent, Chosen, RootMeanSquare,
)  # fmt: skip
HALF_CASES = (Glu, GluLast, Gate, Gelu)
OTHERS = (PartOfTheImage, ChannelSum, ChannelAmax, InALoop, InPlace, Broadcast, Helped, Layered)


class Branches(nn.Module):
    def __init__(self, cases: tuple[type[nn.Module], ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.branches = nn.Conv2d(8, 8, 1), nn.ModuleList([case() for case in cases])

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        x = self.first(picture)
        return tuple(branch(x) for branch in self.branches)


def whole() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(CASES), (torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8),)


def half() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(HALF_CASES), (torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8),)


def others() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches(OTHERS), (torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8),)
