"""What XNNPACK leaves outside, each beside what the kit says to write instead; both compute the same.

`before` and `after` hold every case as a branch of one model, so that one export tries them all.
"""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

_INPUT = torch.linspace(-2, 2, 8 * 8 * 8).reshape(1, 8, 8, 8)


class Branch(nn.Module):
    """One case; what it owns is drawn from its place's seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.dress()

    def dress(self) -> None:
        """A case may own modules and buffers."""


class WeightNorm(Branch):
    norm = staticmethod(weight_norm)

    def dress(self) -> None:
        self.second = self.norm(nn.Conv2d(8, 8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(x)


class NoWeightNorm(WeightNorm):
    def dress(self) -> None:
        super().dress()
        parametrize.remove_parametrizations(self.second, "weight")


class SpectralNorm(WeightNorm):
    norm = staticmethod(spectral_norm)


class NoSpectralNorm(NoWeightNorm):
    norm = staticmethod(spectral_norm)


class Attention(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2)
        return F.scaled_dot_product_attention(x, x, x, scale=1.0)


class WrittenAttention(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2)
        return torch.bmm(torch.bmm(x, x.transpose(1, 2)).softmax(-1), x)


class MatMul(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2)
        return x @ x.transpose(1, 2)


class BatchedMatMul(MatMul):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2)
        return torch.bmm(x, x.transpose(1, 2))


class Gelu(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)


class SigmoidGelu(Gelu):
    def dress(self) -> None:
        self.register_buffer("slope", torch.tensor([1.702]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.slope * x)


class HardSigmoid(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.hardsigmoid(x)


class Relu6(HardSigmoid):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(x + 3.0) * (1 / 6)


class HalfRelu6(HardSigmoid):
    def dress(self) -> None:
        self.register_buffer("three", torch.tensor([3.0]))
        self.register_buffer("sixth", torch.tensor([1 / 6]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(x + self.three) * self.sixth


class Silu(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(x)


class WrittenSilu(Silu):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


class Elu(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.elu(x)


class WrittenElu(Elu):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) - torch.relu(1.0 - torch.exp(x))


class Mean(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class KeptMean(Mean):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True).flatten(1)


class Softmax(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(1)


class LastSoftmax(Softmax):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 3).softmax(-1).transpose(1, 3)


class Nearest(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2)


class Spread(Nearest):
    def dress(self) -> None:
        self.second = nn.ConvTranspose2d(8, 8, 2, 2, groups=2, bias=False)
        with torch.no_grad():
            self.second.weight.copy_(torch.eye(4).reshape(4, 4, 1, 1).repeat(2, 1, 2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(x)


class PaddedPool(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(x, 3, 1, 1)


class PadAndPool(PaddedPool):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 3, 1)


class Chunk(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, 1)
        return left + right


class Slices(Chunk):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :4] + x[:, 4:]


class Unsqueeze(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(1)


class Reshape(Unsqueeze):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, 1, 8, 8, 8)


class Squeeze(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0)


class ReshapeLess(Squeeze):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(8, 8, 8)


class Select(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0]


class SliceOne(Select):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0:1].reshape(1, 8, 8)


class Root(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * x) ** 0.5


class SquareRoot(Root):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(x * x)


class Cube(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x**3


class Product(Cube):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x * x


class Sum(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum((2, 3), keepdim=True)


class MeanTimesSize(Sum):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True) * 64.0


class Largest(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.amax((2, 3))


class WholePool(Largest):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 8).flatten(1)


class WholeNumber(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 3


class FloatNumber(WholeNumber):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 3.0


class Constant(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5


class Buffer(Constant):
    def dress(self) -> None:
        self.register_buffer("scale", torch.tensor([1.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class OldWeightNorm(WeightNorm):
    @staticmethod
    def norm(module: nn.Module) -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return nn.utils.weight_norm(module)


class NoOldWeightNorm(OldWeightNorm):
    def dress(self) -> None:
        super().dress()
        nn.utils.remove_weight_norm(self.second)


class Roll(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll(2, 3)


class Rotated(Roll):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat((x[..., -2:], x[..., :-2]), 3)


class RowMean(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(2).mean(-1, keepdim=True)


class LinearMean(RowMean):
    def dress(self) -> None:
        self.register_buffer("share", torch.full((1, 64), 1 / 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.flatten(2), self.share)


class Norm(Branch):
    def dress(self) -> None:
        self.norm = nn.LayerNorm(8)
        nn.init.uniform_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 3))


class WrittenNorm(Norm):
    def dress(self) -> None:
        super().dress()
        self.register_buffer("share", torch.full((1, 8), 1 / 8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 3)
        d = x - F.linear(x, self.share)
        return d * torch.rsqrt(F.linear(d * d, self.share) + 1e-5) * self.norm.weight + self.norm.bias


class HalfWrittenNorm(Norm):
    def dress(self) -> None:
        super().dress()
        self.register_buffer("share", torch.full((1, 8), 1 / 8), persistent=False)
        self.register_buffer("eps", torch.tensor([1e-5]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 3)
        d = x - F.linear(x, self.share)
        return d * torch.rsqrt(F.linear(d * d, self.share) + self.eps) * self.norm.weight + self.norm.bias


class MaskedFill(Branch):
    def dress(self) -> None:
        self.register_buffer("mask", torch.ones(8, 8).triu(1) > 0, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(self.mask, -2.0)


class Where(MaskedFill):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(self.mask, -2.0, x)


class KeepAndFill(MaskedFill):
    def dress(self) -> None:
        mask = torch.ones(8, 8).triu(1)
        self.register_buffer("keep", 1 - mask, persistent=False)
        self.register_buffer("filled", -2.0 * mask, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.keep + self.filled


class Expand(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.expand(2, -1, -1, -1)


class TimesOnes(Expand):
    def dress(self) -> None:
        self.register_buffer("ones", torch.ones(2, 1, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.ones


class Repeat(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(2, 1)


class TimesMoreOnes(Repeat):
    def dress(self) -> None:
        self.register_buffer("ones", torch.ones(1, 1, 2, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.reshape(1, 8, 1, 8, 8) * self.ones).reshape(1, 16, 8, 8)


class Positions(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(0.0, 4.0, 0.5)


class KeptPositions(Positions):
    def dress(self) -> None:
        self.register_buffer("positions", torch.arange(0.0, 4.0, 0.5), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.positions


class Detour(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1, dtype=torch.float32).to(x.dtype)


class NoDetour(Detour):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1)


class Recurrent(Branch):
    def dress(self) -> None:
        self.lstm = nn.LSTM(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x[:, :2].flatten(2))[0]


class WrittenRecurrent(Recurrent):
    def dress(self) -> None:
        super().dress()
        self.register_buffer("first", torch.zeros(1, 4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = cell = self.first
        every = []
        for step in range(2):
            given = x[:, step : step + 1].reshape(1, 64)
            gates = F.linear(given, self.lstm.weight_ih_l0, self.lstm.bias_ih_l0)
            gates = gates + F.linear(hidden, self.lstm.weight_hh_l0, self.lstm.bias_hh_l0)
            keep, forget = torch.sigmoid(gates[:, :4]), torch.sigmoid(gates[:, 4:8])
            cell = forget * cell + keep * torch.tanh(gates[:, 8:12])
            hidden = torch.sigmoid(gates[:, 12:]) * torch.tanh(cell)
            every.append(hidden.reshape(1, 1, 4))
        return torch.cat(every, 1)


CASES: dict[type[Branch], type[Branch]] = {
    WeightNorm: NoWeightNorm,
    SpectralNorm: NoSpectralNorm,
    Attention: WrittenAttention,
    Recurrent: WrittenRecurrent,
    MatMul: BatchedMatMul,
    HardSigmoid: Relu6,
    Elu: WrittenElu,
    Mean: KeptMean,
    Softmax: LastSoftmax,
    Nearest: Spread,
    PaddedPool: PadAndPool,
    Chunk: Slices,
    Unsqueeze: Reshape,
    Squeeze: ReshapeLess,
    Select: SliceOne,
    Root: SquareRoot,
    Cube: Product,
    Sum: MeanTimesSize,
    Largest: WholePool,
    WholeNumber: FloatNumber,
    OldWeightNorm: NoOldWeightNorm,
    Roll: Rotated,
    RowMean: LinearMean,
    Norm: WrittenNorm,
    MaskedFill: KeepAndFill,
    Where: KeepAndFill,
    Expand: TimesOnes,
    Repeat: TimesMoreOnes,
    Positions: KeptPositions,
}
HALF_CASES: dict[type[Branch], type[Branch]] = {
    Gelu: SigmoidGelu,
    Silu: WrittenSilu,
    Constant: Buffer,
    Detour: NoDetour,
    HardSigmoid: HalfRelu6,
    Norm: HalfWrittenNorm,
}
"""Those that stay outside in fp16 only, or want something else there."""


class Branches(nn.Module):
    def __init__(self, cases: list[type[Branch]]) -> None:
        super().__init__()
        torch.manual_seed(len(cases))
        self.first = nn.Conv2d(8, 8, 1)
        self.branches = nn.ModuleList(case(seed) for seed, case in enumerate(cases))

    def forward(self, picture: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.first(picture)
        return tuple(branch(x) for branch in self.branches)


def before() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Branches(list(CASES)), (_INPUT,)


def after() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Branches(list(CASES.values())), (_INPUT,)


def half_before() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Branches(list(HALF_CASES)), (_INPUT,)


def half_after() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Branches(list(HALF_CASES.values())), (_INPUT,)
