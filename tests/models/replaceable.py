"""What XNNPACK leaves outside, each beside what the kit says to write instead; both compute the same. What
the kit writes itself is in `rewritable.py`.

`before` and `after` hold every case as a branch of one model, so that one export tries them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

INPUT = torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8)
Branch = Callable[[], nn.Module]


class Computed(nn.Module):
    """A function of the input and of what the branch owns: tensors, and modules made with the branch."""

    def __init__(self, compute: Callable[..., Tensor], owned: dict[str, Tensor | Branch]) -> None:
        super().__init__()
        self.compute, self.names = compute, tuple(owned)
        for name, value in owned.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value, persistent=False)
            else:
                self.add_module(name, value())

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x, *(getattr(self, name) for name in self.names))


def of(compute: Callable[..., Tensor], **owned: Tensor | Branch) -> Branch:
    return partial(Computed, compute, owned)


def _normed(
    norm: Callable[[nn.Module], nn.Module], remove: Callable[[nn.Module, str], object] | None = None
) -> Branch:
    def make() -> nn.Module:
        made = norm(nn.Conv2d(8, 8, 3))
        if remove:
            remove(made, "weight")
        return made

    return make


def _old_weight_norm(module: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(module)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(2)


def _written_attention(x: Tensor) -> Tensor:
    x = _rows(x)
    return torch.bmm(torch.bmm(x, x.transpose(1, 2)).softmax(-1), x)


def _spread() -> nn.Module:
    made = nn.ConvTranspose2d(8, 8, 2, 2, groups=2, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.eye(4).reshape(4, 4, 1, 1).repeat(2, 1, 2, 2))
    return made


def _layer_norm() -> nn.Module:
    made = nn.LayerNorm(8)
    nn.init.uniform_(made.weight)
    return made


def _written_norm(x: Tensor, norm: nn.LayerNorm, share: Tensor, eps: float | Tensor = 1e-5) -> Tensor:
    x = x.transpose(1, 3)
    d = x - F.linear(x, share)
    return d * torch.rsqrt(F.linear(d * d, share) + eps) * norm.weight + norm.bias


def _lstm() -> nn.Module:
    return nn.LSTM(64, 4, batch_first=True)


def _written_lstm(x: Tensor, lstm: nn.LSTM, first: Tensor) -> Tensor:
    hidden = cell = first
    every = []
    for step in range(2):
        given = x[:, step : step + 1].reshape(1, 64)
        gates = F.linear(given, lstm.weight_ih_l0, lstm.bias_ih_l0)
        gates = gates + F.linear(hidden, lstm.weight_hh_l0, lstm.bias_hh_l0)
        keep, forget = torch.sigmoid(gates[:, :4]), torch.sigmoid(gates[:, 4:8])
        cell = forget * cell + keep * torch.tanh(gates[:, 8:12])
        hidden = torch.sigmoid(gates[:, 12:]) * torch.tanh(cell)
        every.append(hidden.reshape(1, 1, 4))
    return torch.cat(every, 1)


_MASK, _PLACES = torch.ones(8, 8).triu(1), torch.arange(0.0, 4.0, 0.5)
_EIGHTH, _ONE_64TH = torch.full((1, 8), 1 / 8), torch.full((1, 64), 1 / 64)
_LAYER_NORM = of(lambda x, norm: norm(x.transpose(1, 3)), norm=_layer_norm)
_FILLED = of(lambda x, keep, filled: x * keep + filled, keep=1 - _MASK, filled=-2.0 * _MASK)

CASES: tuple[tuple[Branch, Branch], ...] = (
    (_normed(weight_norm), _normed(weight_norm, parametrize.remove_parametrizations)),
    (_normed(spectral_norm), _normed(spectral_norm, parametrize.remove_parametrizations)),
    (_normed(_old_weight_norm), _normed(_old_weight_norm, nn.utils.remove_weight_norm)),
    (
        of(lambda x: F.scaled_dot_product_attention(_rows(x), _rows(x), _rows(x), scale=1.0)),
        of(_written_attention),
    ),
    (
        of(lambda x, lstm: lstm(x[:, :2].flatten(2))[0], lstm=_lstm),
        of(_written_lstm, lstm=_lstm, first=torch.zeros(1, 4)),
    ),
    (of(lambda x: F.interpolate(x, scale_factor=2)), _spread),
    (of(lambda x: x + 3), of(lambda x: x + 3.0)),
    (
        of(lambda x: _rows(x).mean(-1, keepdim=True)),
        of(lambda x, share: F.linear(_rows(x), share), share=_ONE_64TH),
    ),
    (_LAYER_NORM, of(_written_norm, norm=_layer_norm, share=_EIGHTH)),
    (of(lambda x, mask: x.masked_fill(mask, -2.0), mask=_MASK > 0), _FILLED),
    (of(lambda x, mask: torch.where(mask, -2.0, x), mask=_MASK > 0), _FILLED),
    (of(lambda x: x.expand(2, -1, -1, -1)), of(lambda x, ones: x * ones, ones=torch.ones(2, 1, 1, 1))),
    (
        of(lambda x: x.repeat_interleave(2, 1)),
        of(
            lambda x, ones: (x.reshape(1, 8, 1, 8, 8) * ones).reshape(1, 16, 8, 8),
            ones=torch.ones(1, 1, 2, 1, 1),
        ),
    ),
    (of(lambda x: x + torch.arange(0.0, 4.0, 0.5)), of(lambda x, places: x + places, places=_PLACES)),
)
# Those that stay outside in fp16 only, or want something else there; GELU comes first.
HALF_CASES: tuple[tuple[Branch, Branch], ...] = (
    (
        of(F.gelu),
        of(
            lambda x, first, third: x * torch.sigmoid(x * (first + third * x * x)),
            first=torch.tensor([1.5957691]),
            third=torch.tensor([0.0713548]),
        ),
    ),
    (of(lambda x: x * 1.5), of(lambda x, scale: x * scale, scale=torch.tensor([1.5]))),
    (of(lambda x: x.softmax(-1, dtype=torch.float32).to(x.dtype)), of(lambda x: x.softmax(-1))),
    (
        of(F.hardsigmoid),
        of(
            lambda x, three, sixth: F.relu6(x + three) * sixth,
            three=torch.tensor([3.0]),
            sixth=torch.tensor([1 / 6]),
        ),
    ),
    (_LAYER_NORM, of(_written_norm, norm=_layer_norm, share=_EIGHTH, eps=torch.tensor([1e-5]))),
)


class Branches(nn.Module):
    def __init__(self, cases: Sequence[Branch]) -> None:
        super().__init__()
        torch.manual_seed(len(cases))
        self.first = nn.Conv2d(8, 8, 1)
        self.branches = nn.ModuleList()
        for seed, case in enumerate(cases):
            torch.manual_seed(seed)
            self.branches.append(case())

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        x = self.first(picture)
        return tuple(branch(x) for branch in self.branches)


def before() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches([old for old, _ in CASES]), (INPUT,)


def after() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches([new for _, new in CASES]), (INPUT,)


def half_before() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches([old for old, _ in HALF_CASES]), (INPUT,)


def half_after() -> tuple[nn.Module, tuple[Tensor]]:
    return Branches([new for _, new in HALF_CASES]), (INPUT,)
