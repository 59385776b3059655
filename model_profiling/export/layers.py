"""The rewrites of whole layers: attention, products of matrices, norms, recurrent layers, pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from model_profiling.export.catalogue import (
    CHANNELS_LAST,
    Size,
    Tensor,
    dtype_of,
    fixed,
    is_floating,
    is_half,
    made_by,
    number,
    over_image,
    part,
    require,
    rewrite,
    sizes,
)


@rewrite(
    "attention",
    "aten.scaled_dot_product_attention.default",
    why="attention as one call is taken apart into steps that the delegate refuses",
    instead="torch.bmm(torch.softmax(torch.bmm(q * scale, k.transpose(1, 2)) + mask, -1), v), with batch and "
    'heads as one dimension (transformers: attn_implementation="eager")',
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    import torch

    *batch, length, width = sizes(query)
    *key_batch, key_length, _ = sizes(key)
    require(dropout_p == 0 and 1 <= len(batch) == len(key_batch) <= 2 and is_floating(query))
    fixed(width)
    made = sizes(value)[-1]
    heads, key_heads = (batch[-1], key_batch[-1]) if len(batch) == 2 else (1, 1)
    groups = 1
    if enable_gqa:
        fixed(heads, key_heads)
        groups = heads // key_heads
    elif len(batch) == 2:
        key, value, groups = _without_repeats(key, value)
        key_heads = key_heads // groups if groups > 1 else key_heads
    outer = batch[0]  # with three dimensions, all that stands before the length
    scaled = query * number(query, 1 / math.sqrt(width) if scale is None else scale)
    if len(batch) == 2:
        scaled = scaled.reshape(outer * key_heads, groups * length, width)
        key, value = key.flatten(0, 1), value.flatten(0, 1)
    scores = torch.bmm(scaled, key.transpose(1, 2))
    if is_causal:
        fixed(length, key_length)
        attn_mask = query.new_full((length, key_length), torch.finfo(dtype_of(query)).min).triu(1)
    if attn_mask is not None:
        scores = _masked(scores, attn_mask, (outer, key_heads, groups, length, key_length), query)
    weights = torch.softmax(scores, -1)
    return torch.bmm(weights, value).reshape(*batch, length, made)


def _without_repeats(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
    """Keys and values before their heads were repeated for groups of the queries' heads, and how often: by
    `x[:, :, None].expand(...).reshape(...)`, as transformers does."""
    found = [_repeated(tensor) for tensor in (key, value)]
    if found[0] is None or found[1] is None or found[0][1] != found[1][1]:
        return key, value, 1
    return found[0][0], found[1][0], found[0][1]


def _repeated(tensor: Tensor) -> tuple[Tensor, int] | None:
    import torch

    shaped = getattr(tensor, "node", None)
    expanded = shaped.args[0] if shaped and shaped.target is torch.ops.aten.reshape.default else None
    if expanded is None or expanded.target is not torch.ops.aten.expand.default:
        return None
    before, after = (list(node.meta["val"].shape) for node in (expanded.args[0], expanded))
    fixed(*before, *after)
    if len(before) != 5 or before[2] != 1 or sizes(tensor) != [after[0], after[1] * after[2], *after[3:]]:
        return None
    source = type(tensor)(expanded.args[0], tensor.tracer)
    return (source.reshape(before[:2] + before[3:]), after[2]) if before[:2] == after[:2] else None


def _masked(scores: Tensor, mask: Tensor, shape: tuple[Size, ...], query: Tensor) -> Tensor:
    import torch

    outer, heads, groups, length, key_length = shape
    if dtype_of(mask) == torch.bool:
        lowest = number(query, torch.finfo(dtype_of(query)).max)
        mask = (mask.to(dtype_of(query)) - number(query, 1.0)) * lowest
    require(is_floating(mask))
    before = sizes(mask)[:-2]
    fixed(*before[-1:])  # only the batch may vary
    if all(type(size) is int and size == 1 for size in before):
        rows = scores if groups == 1 else scores.reshape(outer * heads * groups, length, key_length)
        rows = rows + mask.reshape(*sizes(mask)[-2:])
        return rows if groups == 1 else rows.reshape(outer * heads, groups * length, key_length)
    own = [1] * (2 - len(before)) + before
    require(own[1] == 1 or groups == 1)
    full = scores.reshape(outer, heads, groups, length, key_length)
    full = full + mask.reshape(own[0], own[1], 1, *sizes(mask)[-2:])
    return full.reshape(outer * heads, groups * length, key_length)


@rewrite(
    "batched matmul",
    "aten.matmul.default",
    why="a product of tensors with four dimensions is expanded and copied outside the delegate",
    instead="torch.bmm(x.flatten(0, -3), y.flatten(0, -3)), with a reshape behind it",
)
def matmul(self: Tensor, other: Tensor) -> Tensor:
    left, right = sizes(self), sizes(other)
    require(len(left) == len(right) >= 3 and is_floating(self))
    fixed(*left[:-2], *right[:-2])
    require(left[:-2] == right[:-2])
    product = self.flatten(0, -3).bmm(other.flatten(0, -3))
    return product.reshape(*left[:-1], right[-1]) if len(left) > 3 else product


@rewrite(
    "padding",
    "aten.conv2d.default",
    why="padding of its own is computed in floating point between int8 parts",
    instead="nn.Conv2d(..., padding=n) in place of F.pad",
)
def padding(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: Sequence[int], **given: Any
) -> Tensor:
    import torch

    earlier = made_by(input, torch.ops.aten.pad.default)
    around, *filling = earlier.args[1:]
    fixed(*around)
    require(len(around) == 4 and around[::2] == around[1::2] and min(around) >= 0)
    require(filling in ([], ["constant"], ["constant", None], ["constant", 0.0]) and not earlier.kwargs)
    source = type(input)(earlier.args[0], input.tracer)
    wider = [padding[0] + around[2], padding[-1] + around[0]]
    return torch.nn.functional.conv2d(source, weight, bias, padding=wider, **given)


# Norms, and recurrent layers.

_MOST_IN_HALF = 4096
"""Of so many numbers a mean is exact enough in half precision: the weight 1/n is a normal number."""
_MOST_STEPS = 256
"""Steps of all layers and directions; each is some 15 operators."""
_STEP_BY_STEP = (
    "the steps one after another: the inputs' part of all gates in one nn.Linear before them, gates by "
    "slices (gates[:, :n]), the first state as a buffer, outputs joined at the end"
)
_JOINED = 4
"""XNNPACK joins up to five tensors at once."""


def row_means(rows: Tensor, wanted: int = 1) -> Tensor:
    """The means of so many parts of the last dimension, which overlap where it cannot be divided: products
    with 1/n, because the delegate has no such mean."""
    from torch.nn import functional

    count = sizes(rows)[-1]
    fixed(count)
    require(is_floating(rows) and (count <= _MOST_IN_HALF or not is_half(rows)))
    if wanted == 1:
        return functional.linear(rows, rows.new_full((1, count), 1 / count))
    parts = [(place * count // wanted, -(-(place + 1) * count // wanted)) for place in range(wanted)]
    shares = [[(start <= each < end) / (end - start) for each in range(count)] for start, end in parts]
    return functional.linear(rows, rows.new_tensor(shares))


def _normal(rows: Tensor, eps: float) -> Tensor:
    """Rows with mean 0 and variance 1."""
    import torch

    apart = rows - row_means(rows)
    return apart * torch.rsqrt(row_means(apart * apart) + number(rows, eps))


@rewrite(
    "layer norm",
    "aten.layer_norm.default",
    why="a layer norm is computed outside the delegate, and cuts it in two",
    instead="d = x - F.linear(x, row); d * torch.rsqrt(F.linear(d * d, row) + eps) * weight + bias, "
    "with row = 1 / n; this needs several operators: measure whether it is faster",
)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> Tensor:
    require(len(normalized_shape) == 1 and len(sizes(input)) >= 2)
    normal = _normal(input, eps)
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


@rewrite(
    "group norm",
    "aten.group_norm.default",
    why="a group norm is computed outside the delegate, and cuts it in two",
    instead="the steps of a layer norm on x.reshape(batch * groups, -1), shaped back before * weight + bias",
)
def group_norm(
    input: Tensor,
    num_groups: int,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    **_: Any,
) -> Tensor:
    shape = sizes(input)
    fixed(*shape)
    count = math.prod(shape[1:]) // num_groups
    normal = _normal(input.reshape(shape[0] * num_groups, count), eps).reshape(shape)
    channels = (1, shape[1], *(1 for _ in shape[2:]))
    normal = normal if weight is None else normal * weight.reshape(channels)
    return normal if bias is None else normal + bias.reshape(channels)


Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
"""The new state from the inputs' part of the gates and the last state; its first tensor is the output."""


def _lstm_step(weight: Tensor, bias: Tensor | None, hidden: int) -> Step:
    import torch
    from torch.nn import functional

    def step(given: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        gates = given + functional.linear(state[0], weight, bias)
        enter, forget = part(gates, 1, 0, hidden), part(gates, 1, hidden, hidden)
        made, leave = part(gates, 1, 2 * hidden, hidden), part(gates, 1, 3 * hidden, hidden)
        cell = forget.sigmoid() * state[1] + enter.sigmoid() * torch.tanh(made)
        return leave.sigmoid() * torch.tanh(cell), cell

    return step


def _gru_step(weight: Tensor, bias: Tensor | None, hidden: int) -> Step:
    import torch
    from torch.nn import functional

    def step(given: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (last,) = state
        own = functional.linear(last, weight, bias)
        both = (part(given, 1, 0, 2 * hidden) + part(own, 1, 0, 2 * hidden)).sigmoid()
        reset, keep = part(both, 1, 0, hidden), part(both, 1, hidden, hidden)
        made = torch.tanh(part(given, 1, 2 * hidden, hidden) + reset * part(own, 1, 2 * hidden, hidden))
        return (made + keep * (last - made),)

    return step


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    import torch

    while len(parts) > 1:
        groups = [parts[at : at + _JOINED] for at in range(0, len(parts), _JOINED)]
        parts = [torch.cat(group, dim) if len(group) > 1 else group[0] for group in groups]
    return parts[0]


def _unrolled(
    input: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    *,
    make_step: Callable[[Tensor, Tensor | None, int], Step],
    has_biases: bool,
    num_layers: int,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """The outputs of all steps, and the last states of every layer and direction."""
    from torch.nn import functional

    ways = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    require(len(sizes(input)) == 3 and is_floating(input) and not train)
    require(len(params) == each * ways * num_layers)  # others have projections
    fixed(*sizes(input))
    length = sizes(input)[1 if batch_first else 0]
    require(length * ways * num_layers <= _MOST_STEPS)
    x = input.transpose(0, 1) if batch_first else input
    last: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        sides = []
        _, batch, width = sizes(x)
        rows = x.reshape(length * batch, width)
        for way in range(ways):
            number_of = layer * ways + way
            enter, again, *biases = params[number_of * each : (number_of + 1) * each]
            hidden = sizes(again)[1]
            given = functional.linear(rows, enter, biases[0] if biases else None)
            step = make_step(again, biases[1] if biases else None, hidden)
            state = tuple(part(each_state, 0, number_of, 1).reshape(batch, hidden) for each_state in states)
            outputs = []
            for at in range(length)[:: -1 if way else 1]:
                state = step(part(given, 0, at * batch, batch), state)
                outputs.append(state[0].reshape(1, batch, hidden))
            last.append(state)
            sides.append(_joined(outputs[:: -1 if way else 1], 0))
        x = _joined(sides, 2)
    ends = [
        _joined([one[kind].reshape(1, *sizes(one[kind])) for one in last], 0) for kind in range(len(states))
    ]
    return x.transpose(0, 1) if batch_first else x, *ends


@rewrite(
    "recurrent layers",
    "aten.lstm.input",
    why="an LSTM is taken apart into steps of which many are split and joined outside the delegate",
    instead=_STEP_BY_STEP,
)
def lstm(input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], **given: Any) -> tuple[Tensor, ...]:
    given.pop("dropout", None)
    return _unrolled(input, hx, params, make_step=_lstm_step, **given)


@rewrite(
    "recurrent layers",
    "aten.gru.input",
    why="a GRU is taken apart into steps of which many are split and joined outside the delegate",
    instead=_STEP_BY_STEP,
)
def gru(input: Tensor, hx: Tensor, params: Sequence[Tensor], **given: Any) -> tuple[Tensor, ...]:
    given.pop("dropout", None)
    return _unrolled(input, [hx], params, make_step=_gru_step, **given)


# Pools and sums over images.


@rewrite(
    "average pool",
    "aten.avg_pool2d.default",
    why="a window larger than the image (ceil mode), or one with padding, runs outside the delegate",
    instead="x.mean((2, 3), keepdim=True); with padding: a convolution of each channel with 1 / (high * "
    "wide): F.conv2d(x, weight, None, stride, padding, groups=channels)",
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
        channels = sizes(self)[1]
        fixed(channels)
        require(count_include_pad and not ceil_mode)
        weight = self.new_full((channels, 1, high, wide), 1 / (high * wide))
        return functional.conv2d(self, weight, None, stride or kernel_size, padding, groups=channels)
    image = sizes(self)[2:]
    fixed(*image)
    require(high >= image[0] and wide >= image[1] and (ceil_mode or (high, wide) == tuple(image)))
    return self.mean((2, 3), keepdim=True)


@rewrite(
    "adaptive pool",
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    why="an adaptive pool of rows, or of an image to more than one place, has no kernel in the delegate",
    instead="F.avg_pool2d(x, size // wanted) where it divides; else F.linear(x, shares), with a row of "
    "shares for each place, over each dimension",
)
def adaptive_pool(self: Tensor, output_size: Sequence[int]) -> Tensor:
    from torch.nn import functional

    if len(output_size) == 1:
        return row_means(self, *output_size)
    require(len(sizes(self)) == 4 and tuple(output_size) != (1, 1))
    image, (rows, columns) = sizes(self)[2:], output_size
    fixed(*image)
    if image[0] % rows == image[1] % columns == 0:
        kernel = [image[0] // rows, image[1] // columns]
        return functional.avg_pool2d(self, kernel, kernel)
    return row_means(row_means(self, columns).transpose(2, 3), rows).transpose(2, 3)


@rewrite(
    CHANNELS_LAST,
    "aten.adaptive_avg_pool2d.default",
    why="a pool over an image with channels last ends outside the delegate",
    instead="x.mean((2, 3), keepdim=True)",
)
def pool_of_channels_last(self: Tensor, output_size: Sequence[int]) -> Tensor:
    over_image(self, (2, 3))
    require(tuple(output_size) == (1, 1))
    return self.mean((2, 3), keepdim=True)


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
        made = row_means(self)
        return made if keepdim else made.reshape(shape[:-1])
    require(not keepdim)
    over_image(self, dim)
    return self.mean((2, 3), keepdim=True).flatten(1)
