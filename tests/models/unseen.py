"""Models the kit has never seen, named by the tests as `unseen.py:factory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn


def of(
    network: Callable[[], nn.Module], *inputs: object
) -> Callable[[], tuple[nn.Module, tuple[object, ...]]]:
    def make() -> tuple[nn.Module, tuple[object, ...]]:
        return network(), deepcopy(inputs)

    return make


class Computed(nn.Module):
    """A network without weights of its own."""

    def __init__(self, compute: Callable[..., object]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *inputs: Tensor) -> object:
        return self.compute(*inputs)


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


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        doubled = x * 2
        if doubled.sum() > 0:  # cannot be traced
            return doubled
        return -doubled


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


def linear() -> tuple[nn.Module, Tensor]:
    return nn.Linear(8, 8), torch.randn(2, 8)


def two_linear() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 8)), torch.randn(2, 64)


def only_linear() -> object:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_module_type(
        nn.Linear, get_symmetric_quantization_config(is_per_channel=True)
    )


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


class Positions(nn.Module):
    """Adds to indexes and multiplies them, as models of text do with positions and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.out = nn.Embedding(40, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.arange(x.shape[1]) * 2 + 1
        return self.out(x + self.places(order))


class Cache:
    """A plain object with tensors, as transformers' caches are."""

    def __init__(self, total: Tensor) -> None:
        self.total = total


class Caching(nn.Module):
    """Writes into a cache, whose tensor is a buffer too if `registered`."""

    def __init__(self, *, registered: bool) -> None:
        super().__init__()
        self.cache = Cache(torch.full((4,), 3.0))
        if registered:
            self.register_buffer("total", self.cache.total, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.cache.total.add_(x)
        return self.cache.total * 2


class Growing(nn.Module):
    """Remembers its last input in a plain attribute, as models with a cache that grows do."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        last, self.cache.total = self.cache.total, x * 2
        return last + x


class Around(nn.Module):
    """Between two linear layers, values that float16 can hold (`by` is small) or not."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.first, self.loud, self.last = nn.Linear(8, 8), Loud(by), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.loud(self.first(x)))


class Loud(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(x * self.by) / (10 * self.by)


class SmallNorm(nn.Module):
    """A norm of small values. PyTorch computes it in float32; ExecuTorch's kernel for float16 returns NaN if
    a row is wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 8)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x) * 0.01))


class Broken:
    """Its methods return the wrong things."""

    def get_eager_model(self) -> str:
        return "not a module"

    def get_example_inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(2),)


def leaves() -> None:
    raise SystemExit(0)


def list_batches() -> Iterator[list[Tensor]]:
    yield [torch.randn(2, 8)]


def no_iterator() -> None:
    raise RuntimeError("the data is not here")


layers = of(
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)),
    torch.randn(1, 3, 32, 32),
)
unet = of(UNet, torch.randn(1, 3, 32, 32))
# Inferences that take milliseconds, longer than a busy machine leaves a thread its core.
six_layers, seven_layers = (
    of(
        lambda count=count: nn.Sequential(*(nn.Conv2d(32, 32, 3, padding=1) for _ in range(count))),
        torch.randn(1, 32, 96, 96),
    )
    for count in (6, 7)
)
branching = of(Branching, torch.ones(3))
logarithm = of(lambda: Computed(torch.log), torch.tensor([-1.0, 2.0]))
# A softmax of nothing but masked values.
masked = of(
    lambda: Computed(lambda x: torch.softmax(x.masked_fill(x < 5, float("-inf")), -1)), torch.ones(2, 3)
)
word_beside = of(lambda: Computed(lambda x: {"value": x * 2, "unit": "ms"}), torch.ones(3))
# An operator that ExecuTorch does not take.
singular = of(lambda: Computed(torch.linalg.svdvals), torch.ones(3, 3))
spectrum = of(lambda: Computed(lambda x: torch.fft.fft(x).abs()), torch.ones(8))
# A value read into Python, which the record of an export cannot hold.
total = of(lambda: Computed(lambda x: x * x.sum().item()), torch.ones(3))
# Whole numbers and an infinity, all of which are meant.
choice = of(
    lambda: Computed(lambda x: (x.argmax(-1), x > 0, x.masked_fill(x > 0, float("-inf")), None)),
    torch.randn(2, 5),
)
# Every type of input that the runner fills differently, and outputs that divide by one of them.
typed = of(
    lambda: Computed(
        lambda half, byte, index, flag: (
            half + 0,
            byte + 0,
            index + 0,
            flag.logical_not(),
            half / half,
            1 / half,
        )
    ),
    *(
        torch.full((4, 5), dtype == torch.float16).to(dtype)
        for dtype in (torch.float16, torch.int8, torch.int64, torch.bool)
    ),
)
# What comes out is drawn by lot.
drawing = of(lambda: Computed(lambda x: x + torch.rand(1, 4)), torch.ones(1, 4))
large = of(Large, torch.ones(4))
mixed_dtype = of(MixedDtype, torch.randn(2, 4))
wrong_inputs = of(lambda: nn.Linear(8, 8), torch.randn(2, 5))
caching = of(lambda: Caching(registered=True), torch.ones(4))
caching_unregistered = of(lambda: Caching(registered=False), torch.ones(4))
growing = of(Growing, torch.ones(4))
returns_cache = of(lambda: Computed(lambda x: (x + 1, Cache(x))), torch.ones(4))
loud, quiet = (of(lambda by=by: Around(by), torch.ones(2, 8)) for by in (5e5, 1.0))
wide_norm, narrow_norm = (of(lambda width=width: SmallNorm(width), torch.randn(4, 8)) for width in (384, 32))


class Again(nn.Module):
    """Calls each of its layers twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1d, self.conv2d = nn.Conv1d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1d(self.conv1d(x).relu())
        x = self.conv2d(self.conv2d(x[..., None]).relu())[..., 0]
        return self.linear(self.linear(x).relu())


again = of(Again, torch.randn(1, 4, 8))
norms, narrow_norms = (
    of(
        lambda width=width: nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.Dropout(), nn.LayerNorm(width)
        ),
        torch.randn(4, width),
    )
    for width in (384, 192)
)
positions = of(Positions, torch.randn(1, 8, 16))
counter = of(Counter, torch.ones(3))
in_place = of(lambda: Computed(lambda x: x.add_(1) * 2), torch.ones(3))
nested = of(
    lambda: Computed(lambda pair, by: {"sum": pair[0] + pair[1], "scaled": by["scale"] * pair[0]}),
    (torch.ones(2), torch.ones(2)),
    {"scale": torch.tensor(3.0)},
)
double = of(lambda: nn.Linear(8, 8).double(), torch.randn(2, 8, dtype=torch.float64))
keyword, broken = WithKeyword, Broken
# XNNPACK does not run a convolution of padded data with dynamic ranges.
padded = of(
    lambda: nn.Sequential(
        nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 8, 3, stride=2), nn.Flatten(), nn.Linear(8 * 16 * 16, 4)
    ),
    torch.randn(1, 3, 32, 32),
)
