"""The rewrites of whole layers: norms, and recurrent layers step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from model_profiling.export.catalogue import (
    Tensor,
    fixed,
    is_floating,
    is_half,
    number,
    require,
    rewrite,
    sizes,
)

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


def row_mean(rows: Tensor) -> Tensor:
    """The mean over the last dimension, which stays: a product with 1/n, because the delegate has no such
    mean."""
    from torch.nn import functional

    count = sizes(rows)[-1]
    fixed(count)
    require(is_floating(rows) and (count <= _MOST_IN_HALF or not is_half(rows)))
    return functional.linear(rows, rows.new_full((1, count), 1 / count))


def _normal(rows: Tensor, eps: float) -> Tensor:
    """Rows with mean 0 and variance 1."""
    import torch

    apart = rows - row_mean(rows)
    return apart * torch.rsqrt(row_mean(apart * apart) + number(rows, eps))


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
        enter, forget = gates.narrow(1, 0, hidden), gates.narrow(1, hidden, hidden)
        made, leave = gates.narrow(1, 2 * hidden, hidden), gates.narrow(1, 3 * hidden, hidden)
        cell = forget.sigmoid() * state[1] + enter.sigmoid() * torch.tanh(made)
        return leave.sigmoid() * torch.tanh(cell), cell

    return step


def _gru_step(weight: Tensor, bias: Tensor | None, hidden: int) -> Step:
    import torch
    from torch.nn import functional

    def step(given: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (last,) = state
        own = functional.linear(last, weight, bias)
        both = (given.narrow(1, 0, 2 * hidden) + own.narrow(1, 0, 2 * hidden)).sigmoid()
        reset, keep = both.narrow(1, 0, hidden), both.narrow(1, hidden, hidden)
        made = torch.tanh(given.narrow(1, 2 * hidden, hidden) + reset * own.narrow(1, 2 * hidden, hidden))
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
            state = tuple(each_state.narrow(0, number_of, 1).reshape(batch, hidden) for each_state in states)
            outputs = []
            for at in range(length)[:: -1 if way else 1]:
                state = step(given.narrow(0, at * batch, batch), state)
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
