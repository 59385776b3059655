"""The rewrites: other PyTorch code for calls that cost more than they need to in ExecuTorch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from model_profiling.export.catalogue import (
    BY_OPERATOR,
    CATALOGUE,
    CONSTANTS,
    Tensor,
    dtype_of,
    fixed,
    is_constant,
    is_floating,
    is_half,
    number,
    over_image,
    require,
    rewrite,
    sizes,
)
from model_profiling.export.layers import row_mean

__all__ = ["BY_OPERATOR", "CATALOGUE", "names"]

# Pools and sums over images.


@rewrite(
    "average pool",
    "aten.avg_pool2d.default",
    why="a window larger than the image (ceil mode), or one with padding, runs outside the delegate",
    instead="x.mean((2, 3), keepdim=True); with padding: F.avg_pool2d(F.pad(x, padding), kernel, stride)",
)
def average_pool(
    self: Tensor,
    kernel_size: Sequence[int],
    *,
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    from torch.nn import functional

    high, wide = (kernel_size[0], kernel_size[-1])
    require(divisor_override is None and len(sizes(self)) == 4 and is_floating(self))
    if any(padding):
        require(count_include_pad and not ceil_mode)
        above, beside = padding[0], padding[-1]
        padded = functional.pad(self, (beside, beside, above, above))
        return functional.avg_pool2d(padded, kernel_size, stride or kernel_size)
    image = sizes(self)[2:]
    fixed(*image)
    require(high >= image[0] and wide >= image[1] and (ceil_mode or (high, wide) == tuple(image)))
    return self.mean((2, 3), keepdim=True)


@rewrite(
    "adaptive pool",
    "aten.adaptive_avg_pool2d.default",
    why="an adaptive pool to more than one place has no kernel in the delegate",
    instead="F.avg_pool2d(x, size // wanted), where it divides",
)
def adaptive_pool(self: Tensor, output_size: Sequence[int]) -> Tensor:
    from torch.nn import functional

    require(len(sizes(self)) == 4)
    image, wanted = sizes(self)[2:], (output_size[0], output_size[-1])
    fixed(*image)
    require(wanted != (1, 1) and all(size % part == 0 for size, part in zip(image, wanted, strict=True)))
    kernel = [size // part for size, part in zip(image, wanted, strict=True)]
    return functional.avg_pool2d(self, kernel, kernel)


@rewrite(
    "means",
    "aten.mean.dim",
    why="the delegate takes a mean only over an image, and with keepdim=True",
    instead="x.mean((2, 3), keepdim=True).flatten(1); over the last dimension F.linear(x, row), row = 1 / n",
)
def mean(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    require(dtype is None)
    shape = sizes(self)
    if len(shape) > 1 and [each % len(shape) for each in dim or ()] == [len(shape) - 1]:
        made = row_mean(self)
        return made if keepdim else made.reshape(shape[:-1])
    require(not keepdim)
    over_image(self, dim)
    return self.mean((2, 3), keepdim=True).flatten(1)


@rewrite(
    "image sum",
    "aten.sum.dim_IntList",
    why="the delegate has a mean over an image, but no sum",
    instead="x.mean((2, 3), keepdim=True) * (height * width)",
)
def image_sum(self: Tensor, dim: Sequence[int] | None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    require(dtype is None)
    high, wide = over_image(self, dim)
    total = self.mean((2, 3), keepdim=True) * number(self, float(high * wide))
    return total if keepdim else total.flatten(1)


@rewrite(
    "image maximum",
    "aten.amax.default",
    why="the delegate has no maximum over dimensions, but a pool",
    instead="F.max_pool2d(x, (height, width))",
)
def image_maximum(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    from torch.nn import functional

    largest = functional.max_pool2d(self, over_image(self, dim))
    return largest if keepdim else largest.flatten(1)


# Activations.


@rewrite(
    "glu",
    "aten.glu.default",
    why="a gated linear unit is split outside the delegate",
    instead="x[:, :n] * torch.sigmoid(x[:, n:])",
)
def glu(self: Tensor, dim: int = -1) -> Tensor:
    shape = sizes(self)
    dim %= len(shape)
    fixed(shape[dim])
    half = shape[dim] // 2
    return self.narrow(dim, 0, half) * self.narrow(dim, half, half).sigmoid()


@rewrite(
    "mish",
    "aten.mish.default",
    why="mish is computed outside the delegate",
    instead="e = torch.exp(x.clamp(max=20)); n = e * (e + 2); x * n / (n + 2)",
)
def mish(self: Tensor) -> Tensor:
    require(is_floating(self))
    power = self.clamp(max=5.0 if is_half(self) else 20.0).exp()
    top = power * (power + number(self, 2.0))
    return self * (top / (top + number(self, 2.0)))


@rewrite(
    "hard sigmoid",
    "aten.hardsigmoid.default",
    why="the delegate has no hard sigmoid",
    instead="F.relu6(x + 3.0) * (1 / 6), in fp16 with both numbers as buffers",
)
def hard_sigmoid(self: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.relu6(self + number(self, 3.0)) * number(self, 1 / 6)


@rewrite(
    "half-precision activations",
    "aten.silu.default",
    why="in fp16 this activation is computed in fp32, outside the delegate",
    instead="x * torch.sigmoid(x)",
)
def half_silu(self: Tensor) -> Tensor:
    require(is_half(self))
    return self * self.sigmoid()


@rewrite(
    "half-precision activations",
    "aten.hardswish.default",
    why="in fp16 this activation is computed in fp32, outside the delegate",
    instead="x * F.relu6(x + 3.0) * (1 / 6)",
)
def half_hardswish(self: Tensor) -> Tensor:
    require(is_half(self))
    return self * hard_sigmoid(self)


@rewrite(
    "half-precision activations",
    "aten.gelu.default",
    why="in fp16 this activation is computed in fp32, outside the delegate",
    instead="x * torch.sigmoid(x * (1.5957691 + 0.0713548 * x * x)), both numbers as buffers: the tanh form "
    "of GELU, which differs from the other by less than fp16 rounds",
)
def half_gelu(self: Tensor, **_: Any) -> Tensor:
    require(is_half(self))
    bent = self * self * number(self, 0.0713548) + number(self, 1.5957691)
    return self * (self * bent).sigmoid()


@rewrite(
    "elu",
    "aten.elu.default",
    why="elu is computed outside the delegate",
    instead="torch.relu(x) - alpha * torch.relu(1.0 - torch.exp(x))",
)
def elu(self: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    require(scale == input_scale == 1 and is_floating(self))
    negative = (number(self, 1.0) - self.exp()).relu()
    return self.relu() - (negative if alpha == 1 else negative * number(self, float(alpha)))


@rewrite(
    "softmax",
    "aten.softmax.int",
    why="the delegate takes a softmax only over the last dimension",
    instead="x.transpose(dim, -1).softmax(-1).transpose(dim, -1)",
)
def softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    require(dtype in (None, dtype_of(self)) and dim % len(sizes(self)) != len(sizes(self)) - 1)
    return self.transpose(dim, -1).softmax(-1).transpose(dim, -1)


@rewrite(
    "powers",
    "aten.pow.Tensor_Scalar",
    why="the delegate has squares, but no other powers",
    instead="torch.sqrt(x), or x * x * x",
)
def powers(self: Tensor, exponent: float) -> Tensor:
    require(exponent in (0.5, 3, 4) and is_floating(self))
    if exponent == 0.5:
        return self.sqrt()
    square = self * self
    return square * (self if exponent == 3 else square)


# Parts of tensors.


@rewrite(
    "slices",
    "aten.chunk.default",
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    why="chunk and split copy outside the delegate",
    instead="slices: x[:, :n], x[:, n:]",
)
def slices(
    self: Tensor,
    dim: int = 0,
    chunks: int | None = None,
    split_size: int | None = None,
    split_sizes: Sequence[int] | None = None,
) -> Any:
    require(is_floating(self))
    size = sizes(self)[dim]
    fixed(size)
    if split_sizes is None:
        step = -(-size // chunks) if chunks else split_size
        fixed(step)
        split_sizes = [min(step, size - start) for start in range(0, size, step or 1)]
    fixed(*split_sizes)
    starts = [0, *itertools.accumulate(split_sizes)]
    return [self.narrow(dim, start, length) for start, length in zip(starts, split_sizes, strict=False)]


@rewrite(
    "slices",
    "aten.unbind.int",
    why="unbind copies outside the delegate",
    instead="a slice of length 1 for each part, with a reshape: x[:, 0:1].reshape(shape)",
)
def unbind(self: Tensor, dim: int = 0) -> Any:
    shape = sizes(self)
    dim %= len(shape)
    require(is_floating(self))
    fixed(shape[dim])
    left = shape[:dim] + shape[dim + 1 :]
    return [self.narrow(dim, place, 1).reshape(left) for place in range(shape[dim])]


@rewrite(
    "slices",
    "aten.select.int",
    why="an index copies outside the delegate",
    instead="a slice of length 1 with a reshape: x[:, 0:1].reshape(shape)",
)
def select(self: Tensor, dim: int, index: int) -> Tensor:
    shape = sizes(self)
    dim %= len(shape)
    require(is_floating(self) and len(shape) > 1)
    fixed(index, shape[dim])
    return self.narrow(dim, index % shape[dim], 1).reshape(shape[:dim] + shape[dim + 1 :])


@rewrite(
    "reshapes",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze.default",
    why="squeeze and unsqueeze copy outside the delegate",
    instead="x.reshape(shape)",
)
def reshapes(self: Tensor, dim: Any, operator: str = "") -> Tensor:
    shape = sizes(self)
    require(is_floating(self))
    if operator.startswith("aten.unsqueeze"):
        place = dim % (len(shape) + 1)
        return self.reshape([*shape[:place], 1, *shape[place:]])
    dims = {each % len(shape) for each in ([dim] if isinstance(dim, int) else dim)}
    fixed(*(shape[each] for each in dims))
    left = [size for place, size in enumerate(shape) if place not in dims or size != 1]
    require(left)
    return self.reshape(left)


@rewrite(
    "reshapes",
    "aten.alias.default",
    why="a slice of everything copies outside the delegate",
    instead="x",
)
def everything(self: Tensor) -> Tensor:
    return self


@rewrite(
    "roll",
    "aten.roll.default",
    why="roll indexes outside the delegate",
    instead="torch.cat((x[:, -n:], x[:, :-n]), 1)",
)
def roll(self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    import torch

    require(dims and len(shifts) == len(dims) and is_floating(self))
    for shift, dim in zip(shifts, dims, strict=True):
        size = sizes(self)[dim]
        fixed(size, shift)
        if cut := -shift % size:
            self = torch.cat((self.narrow(dim, cut, size - cut), self.narrow(dim, 0, cut)), dim)
    return self


@rewrite(
    "masks",
    "aten.masked_fill.Scalar",
    "aten.masked_fill.Tensor",
    why="a mask that is the same for every input is applied outside the delegate",
    instead="with float buffers, where the mask is the same for every input: x * keep + filled (before a "
    "softmax: x + a mask of 0 and -10000)",
)
def masks(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    import torch

    require(is_floating(self) and is_constant(mask) and isinstance(value, int | float))
    keep = mask.logical_not().to(dtype_of(self))
    lowest = torch.finfo(dtype_of(self)).min
    filled = torch.where(mask, max(float(value), lowest), 0.0).to(dtype_of(self))
    return self * keep + filled


@rewrite(
    "masks",
    "aten.where.self",
    "aten.where.ScalarOther",
    "aten.where.ScalarSelf",
    why="a choice that is the same for every input is made outside the delegate",
    instead="with float buffers, where the condition is the same for every input: x * keep + y * (1 - keep)",
)
def choices(condition: Tensor, self: Any, other: Any) -> Tensor:
    tensors = [side for side in (self, other) if not isinstance(side, int | float)]
    require(is_constant(condition) and len({dtype_of(side) for side in tensors}) == 1)
    require(is_floating(tensors[0]))
    dtype = dtype_of(tensors[0])
    return _chosen(condition, self, dtype) + _chosen(condition.logical_not(), other, dtype)


def _chosen(condition: Tensor, side: Any, dtype: Any) -> Tensor:
    """The side where it is chosen, and 0 elsewhere; infinities of constants become the largest number."""
    import torch

    if not isinstance(side, int | float) and not is_constant(side):
        return side * condition.to(dtype)
    most = torch.finfo(dtype).max
    return torch.where(condition, side, 0.0).clamp(-most, most).to(dtype)


def names() -> tuple[str, ...]:
    return (*CATALOGUE, CONSTANTS)
