"""The rewrites: other PyTorch code for calls that cost more than they need to in ExecuTorch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.records import read_record
from model_profiling.export import layers
from model_profiling.export.catalogue import (
    BY_OPERATOR,
    CATALOGUE,
    CHANNELS_LAST,
    Tensor,
    dtype_of,
    fixed,
    is_constant,
    is_floating,
    is_half,
    made_by,
    needs_times,
    number,
    part,
    require,
    rewrite,
    sizes,
)

__all__ = ["BY_OPERATOR", "CATALOGUE", "layers", "names"]

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
    return part(self, dim, 0, half) * part(self, dim, half, half).sigmoid()


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


_IN_HALF = 2.0**-14, 65504.0
"""Normal numbers of half precision: others would become 0 or infinity."""


@rewrite(
    "numbers",
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.mul.Tensor",
    "aten.div.Tensor",
    "aten.rsub.Scalar",
    why="a whole number beside a tensor, in fp16 any number, is converted outside the delegate",
    instead="a float (3.0, not 3); in fp16 a buffer of the model (register_buffer), which has its dtype",
)
def numbers(self: Tensor, other: Any, alpha: float = 1, *, operator: str) -> Tensor:
    require(isinstance(other, int | float) and alpha == 1 and sizes(self) and is_floating(self))
    in_half = _IN_HALF[0] <= abs(other) <= _IN_HALF[1]
    require(in_half if is_half(self) else type(other) is int)
    beside, kind = number(self, float(other)), operator.split(".")[1]
    return beside - self if kind == "rsub" else getattr(self, kind)(beside)


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

_MOST_DIMS = 6
"""XNNPACK's tensors have at most so many."""


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
    return [part(self, dim, start, length) for start, length in zip(starts, split_sizes, strict=False)]


@rewrite(
    "slices",
    "aten.slice.Tensor",
    "aten.narrow.default",
    why="a slice with a step copies outside the delegate, and the quantizer does not know narrow",
    instead="x[:, 1::2] of an even size as x.reshape(batch, n // 2, 2, -1)[:, :, 1:2].reshape(batch, n // 2, "
    "-1), with torch.cat for what is left of others; narrow as x[:, a:b]",
)
def steps(
    self: Tensor, dim: int, start: Any, *, end: Any = None, step: int = 1, length: Any = None
) -> Tensor:
    import torch

    shape = sizes(self)
    dim %= len(shape)
    fixed(start or 0, end or 0, length or 0, shape[dim])
    if length is not None:
        return part(self, dim, start + shape[dim] if start < 0 else start, length)
    require(is_floating(self) and step > 1 and len(shape) < _MOST_DIMS)
    start, end, _ = slice(start, end).indices(shape[dim])
    count, first = -(-(end - start) // step), start - start % step
    require(count > 0)
    whole = min(count, (shape[dim] - first) // step)
    last = part(self, dim, start + (count - 1) * step, 1)
    if not whole:
        return last
    rows = part(self, dim, first, whole * step).reshape([*shape[:dim], whole, step, *shape[dim + 1 :]])
    made = part(rows, dim + 1, start % step, 1).reshape([*shape[:dim], whole, *shape[dim + 1 :]])
    return made if whole == count else torch.cat((made, last), dim)


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
    return [part(self, dim, place, 1).reshape(left) for place in range(shape[dim])]


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
    return part(self, dim, index % shape[dim], 1).reshape(shape[:dim] + shape[dim + 1 :])


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
    "layout changes",
    "aten.permute.default",
    "aten.transpose.int",
    why="two layout changes, one after the other, copy twice",
    instead="one x.permute(...), or none where the second undoes the first",
)
def layout_changes(self: Tensor, **change: Any) -> Tensor:
    import torch

    earlier = made_by(self, torch.ops.aten.permute.default, torch.ops.aten.transpose.int)
    before = _order(len(sizes(self)), *earlier.args[1:])
    order = [before[dim] for dim in _order(len(before), *change.values())]
    source = type(self)(earlier.args[0], self.tracer)
    return source if order == sorted(order) else source.permute(order)


def _order(rank: int, *change: Any) -> list[int]:
    """The dimensions in the order of a permute or transpose."""
    if len(change) == 1:
        return [dim % rank for dim in change[0]]
    order = list(range(rank))
    first, second = (dim % rank for dim in change)
    order[first], order[second] = second, first
    return order


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
            self = torch.cat((part(self, dim, cut, size - cut), part(self, dim, 0, cut)), dim)
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
    return tuple(CATALOGUE)


# Which rewrites `--optimize` applies: what `sme2prof optimize` kept, or what helps by structure.

OPTIMIZATION = "optimization.json"
Optimize = bool | StrPath | tuple[str, ...]
"""Nothing (False), what is usual (True), a saved choice (its file, or the folder of it), or names."""
_AGAIN = "run `sme2prof optimize` again, or remove that file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChoice:
    """What is read of `optimization.json` to apply it again."""

    schema_version: Literal[1] = 1
    model: str
    source: str
    kept: tuple[str, ...]

    def is_for(self, model: str, source: str) -> bool:
        return self.model == model or self.source == source


def chosen_rewrites(
    optimize: Optimize, model: str, source: str, program: Path, dtype: str
) -> tuple[str, ...] | None:
    """Return the rewrites for `model`, whose program will be `program`; None if it is to stay as it is."""
    if isinstance(optimize, tuple):
        return known_rewrites(optimize) or None
    if optimize is False:
        return None
    if not isinstance(optimize, bool):
        path = choice_file(optimize)
        choice = _read(path)
        if not choice.is_for(model, source):
            fix = "give the file of this model, or --optimize without a file"
            raise InputError(f"{path} is for the model {choice.model}, not for {model}", fix)
        return choice.kept
    # Where `sme2prof optimize` writes for this model, number format and backend.
    saved = program.parent.parent / "runs" / program.stem.removeprefix(f"{model}_") / OPTIMIZATION
    if saved.is_file() and (choice := _read(saved)).is_for(model, source):
        return choice.kept
    return usual_rewrites(dtype)


def usual_rewrites(dtype: str) -> tuple[str, ...]:
    return tuple(name for name in names() if name != CHANNELS_LAST and not needs_times(name, dtype))


def known_rewrites(given: tuple[str, ...]) -> tuple[str, ...]:
    known = names()
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f"choose from {', '.join(known)}"
            raise InputError(f"there is no rewrite '{name}'", hint)
    return given


def choice_file(given: StrPath) -> Path:
    """Return the file of a saved choice that a person named, by itself or by its folder."""
    named = as_path(given)
    path = named / OPTIMIZATION if named.is_dir() else named
    if not path.is_file():
        fix = f"give the {OPTIMIZATION} of `sme2prof optimize`, or its folder; a model goes before --optimize"
        raise InputError(f"there is no file {path}", fix)
    return path


def _read(path: Path) -> SavedChoice:
    choice = read_record(SavedChoice, path, _AGAIN)
    unknown = [name for name in choice.kept if name not in names()]
    if unknown:
        raise InputError(f"{path} has the rewrite '{unknown[0]}', which this kit does not have", _AGAIN)
    return choice
