"""Models the kit has never seen, named by the tests as `unseen.py:factory`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """A two-layer transformer encoder over token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens)))


class UNet(nn.Module):
    """One level down, one level up, one skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        skip = self.down(image)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], dim=1))


class Tagger(nn.Module):
    """An LSTM with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, sequence: Tensor) -> tuple[Tensor, Tensor]:
        states, (last, _) = self.lstm(sequence)
        return self.head(states), last


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        doubled = x * 2
        if doubled.sum() > 0:  # cannot be traced
            return doubled
        return -doubled


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(x)


class Scale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 10.0


class Large(nn.Module):
    """Finite in float32, beyond what fp16 can hold; an infinity that is meant comes before."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(x.masked_fill(x > 5, float("-inf")), -1)
        return self.scale(x * 3e4) - shares


class Masked(nn.Module):
    """A softmax of nothing but masked values."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = x.masked_fill(x < 5, float("-inf"))
        return torch.softmax(hidden, -1)


class WordBeside(nn.Module):
    def forward(self, x: Tensor) -> dict[str, object]:
        return {"value": x * 2, "unit": "ms"}


class Singular(nn.Module):
    """An operator that ExecuTorch does not take."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.svdvals(x)


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).abs()


class Sum(nn.Module):
    """A value read into Python, which the record of an export cannot hold."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.sum().item()


class Choice(nn.Module):
    """Whole numbers and an infinity, all of which are meant."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        return x.argmax(-1), x > 0, x.masked_fill(x > 0, float("-inf")), None


class MixedDtype(nn.Module):
    """Insists on float32 in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.float())


class Scaled(nn.Module):
    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        return x * scale


class WithKeyword:
    """Has ExecuTorch's example-model methods without deriving from anything."""

    def get_eager_model(self) -> nn.Module:
        return Scaled()

    def get_example_inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2, 3),)

    def get_example_kwarg_inputs(self) -> dict[str, Tensor]:
        return {"scale": torch.tensor(2.0)}


def encoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Encoder(), (torch.randint(0, 100, (1, 16)),)


def unet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return UNet(), (torch.randn(1, 3, 32, 32),)


def lstm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Tagger(), (torch.randn(1, 6, 8),)


def keyword() -> WithKeyword:
    return WithKeyword()


def linear() -> tuple[nn.Module, Tensor]:
    return nn.Linear(8, 8), torch.randn(2, 8)


def branching() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Branching(), (torch.ones(3),)


def logarithm() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Logarithm(), (torch.tensor([-1.0, 2.0]),)


def masked() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Masked(), (torch.ones(2, 3),)


def word_beside() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return WordBeside(), (torch.ones(3),)


def singular() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Singular(), (torch.ones(3, 3),)


def spectrum() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Spectrum(), (torch.ones(8),)


def total() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Sum(), (torch.ones(3),)


def choice() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Choice(), (torch.randn(2, 5),)


def large() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Large(), (torch.ones(4),)


def mixed_dtype() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return MixedDtype(), (torch.randn(2, 4),)


def wrong_inputs() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Linear(8, 8), (torch.randn(2, 5),)


def raises() -> None:
    raise ValueError("the weights are not here")


def returns_a_number() -> int:
    return 3


def wide_batches() -> Iterator[tuple[Tensor, ...]]:
    """Ten times the range of the example inputs: a calibration on these must show in the program."""
    for _ in range(3):
        yield (torch.randn(2, 8) * 10,)


def misshapen_batches() -> Iterator[tuple[Tensor, ...]]:
    yield (torch.randn(2, 5),)


def no_batches() -> Iterator[tuple[Tensor, ...]]:
    yield from ()


class Counter(nn.Module):
    """Keeps a running count that does not begin at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((3,), 5.0))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x + self.count


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


class Nested(nn.Module):
    def forward(self, pair: tuple[Tensor, Tensor], named: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"sum": pair[0] + pair[1], "scaled": named["scale"] * pair[0]}


class Broken:
    """Its methods return the wrong things."""

    def get_eager_model(self) -> str:
        return "not a module"

    def get_example_inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2),)


def counter() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Counter(), (torch.ones(3),)


def in_place() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return InPlace(), (torch.ones(3),)


def nested() -> tuple[nn.Module, tuple[object, ...]]:
    return Nested(), ((torch.ones(2), torch.ones(2)), {"scale": torch.tensor(3.0)})


def double() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Linear(8, 8).double(), (torch.randn(2, 8, dtype=torch.float64),)


def broken() -> Broken:
    return Broken()


def leaves() -> None:
    raise SystemExit(0)


def list_batches() -> Iterator[list[Tensor]]:
    yield [torch.randn(2, 8)]


def no_iterator() -> None:
    raise RuntimeError("the data is not here")
