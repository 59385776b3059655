"""Every rewrite equals the operator it replaces, or refuses its arguments."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from model_profiling.export.catalogue import Unfit
from model_profiling.export.rewrites import BY_OPERATOR, CATALOGUE, names
from model_profiling.export.rewritten import rewrite_graph

Draw = Callable[[st.SearchStrategy[Any]], Any]
Call = tuple[list[Any], dict[str, Any]]

small = st.integers(1, 5)
POWERS = st.sampled_from([0.5, 2, 3, 4, 1.5])


def _tensor(draw: Draw, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(draw(st.integers(0, 1000)))
    return torch.randn(*shape).to(dtype)


def _shape(draw: Draw, least: int = 1, most: int = 4) -> list[int]:
    return list(draw(st.lists(small, min_size=least, max_size=most)))


def _dim(draw: Draw, shape: list[int]) -> int:
    return int(draw(st.integers(-len(shape), len(shape) - 1)))


def _attention(draw: Draw, dtype: torch.dtype) -> Call:
    batch, groups, key_heads, length, keys, width = (draw(small) for _ in range(6))
    heads = groups * key_heads
    mask = draw(st.sampled_from(["none", "bool", "float", "causal", "per head"]))
    query = _tensor(draw, batch, heads, length, width, dtype=dtype)
    key = _tensor(draw, batch, key_heads, keys, width, dtype=dtype)
    value = _tensor(draw, batch, key_heads, keys, draw(small), dtype=dtype)
    given: dict[str, Any] = {"enable_gqa": groups > 1}
    if mask == "bool":
        given["attn_mask"] = torch.ones(batch, 1, length, keys, dtype=torch.bool).tril(keys - 1)
    elif mask == "float":
        given["attn_mask"] = _tensor(draw, length, keys, dtype=dtype)
    elif mask == "per head":
        given["attn_mask"] = _tensor(draw, batch, heads, length, keys, dtype=dtype)
    elif mask == "causal":
        given["is_causal"] = True
    if draw(st.booleans()):
        given["scale"] = 0.3
    return [query, key, value], given


def _plain(draw: Draw, dtype: torch.dtype) -> torch.Tensor:
    return _tensor(draw, *_shape(draw), dtype=dtype)


def _elementwise(draw: Draw, dtype: torch.dtype) -> Call:
    return [_plain(draw, dtype) * 6], {}


def _matmul(draw: Draw, dtype: torch.dtype) -> Call:
    batch = _shape(draw, 0, 3)
    rows, inner, columns = (draw(small) for _ in range(3))
    shapes = (*batch, rows, inner), (*batch, inner, columns)
    return [_tensor(draw, *shape, dtype=dtype) for shape in shapes], {}


def _pool(draw: Draw, dtype: torch.dtype) -> Call:
    high, wide = draw(st.integers(3, 5)), draw(st.integers(3, 5))
    image = _tensor(draw, 2, 3, high, wide, dtype=dtype)
    if draw(st.booleans()):
        kernel, around = draw(st.integers(2, 3)), draw(st.integers(0, 1))
        return [image, [kernel], [draw(st.integers(1, 2))], [around], False, draw(st.booleans())], {}
    more = draw(st.integers(0, 1))
    return [image, [high + more, wide + more], [high, wide], [0, 0], more > 0 or draw(st.booleans())], {}


def _reduced(draw: Draw, dtype: torch.dtype) -> Call:
    dims = draw(st.sampled_from([[2, 3], [-1, -2], [1], [3]]))
    return [_tensor(draw, 2, 3, draw(small), draw(small), dtype=dtype), dims, draw(st.booleans())], {}


def _one_dim(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    return [_tensor(draw, *shape, dtype=dtype), _dim(draw, shape)], {}


def _glu(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    dim = _dim(draw, shape)
    shape[dim] *= 2
    return [_tensor(draw, *shape, dtype=dtype), dim], {}


def _norm(draw: Draw, dtype: torch.dtype) -> Call:
    shape = [*_shape(draw, 1, 3), draw(st.integers(2, 9))]
    weights = [_tensor(draw, shape[-1], dtype=dtype) if draw(st.booleans()) else None for _ in range(2)]
    values = _tensor(draw, *shape, dtype=dtype)
    # A mean in half precision is rounded: where values hardly differ from it, their norm is mostly rounding.
    # `optimize` compares the outputs of the whole model.
    assume(dtype == torch.float32 or float(values.float().std(-1).min()) > 0.5)
    return [values, [shape[-1]], *weights], {}


def _chunk(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    return [_tensor(draw, *shape, dtype=dtype), draw(small), _dim(draw, shape)], {}


def _split(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    dim = _dim(draw, shape)
    sizes = draw(st.lists(small, min_size=1, max_size=3))
    shape[dim] = sum(sizes)
    return [_tensor(draw, *shape, dtype=dtype), sizes, dim], {}


def _select(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    dim = _dim(draw, shape)
    return [_tensor(draw, *shape, dtype=dtype), dim, draw(st.integers(-shape[dim], shape[dim] - 1))], {}


def _step(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    dim, ends = _dim(draw, shape), st.one_of(st.none(), st.integers(-6, 6))
    return [_tensor(draw, *shape, dtype=dtype), dim, draw(ends), draw(ends), draw(st.integers(1, 3))], {}


def _narrow(draw: Draw, dtype: torch.dtype) -> Call:
    args, _ = _select(draw, dtype)
    tensor, dim, start = args
    return [*args, draw(st.integers(0, tensor.shape[dim] - start % tensor.shape[dim]))], {}


def _roll(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    dims = draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True))
    shifts = [draw(st.integers(-7, 7)) for _ in dims]
    return [_tensor(draw, *shape, dtype=dtype), shifts, dims], {}


def _masked(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    filling = draw(st.sampled_from([0.0, -1.0, -10000.0]))
    return [_tensor(draw, *shape, dtype=dtype), _tensor(draw, *shape) > 0, filling], {}


def _group_norm(draw: Draw, dtype: torch.dtype) -> Call:
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = [draw(small), groups * each, *draw(st.lists(st.integers(2, 4), min_size=1, max_size=2))]
    weights = [_tensor(draw, groups * each, dtype=dtype) if draw(st.booleans()) else None for _ in range(2)]
    values = _tensor(draw, *shape, dtype=dtype)
    rows = values.float().reshape(shape[0] * groups, -1)
    assume(dtype == torch.float32 or float(rows.std(-1).min()) > 0.5)
    return [values, groups, *weights], {}


def _choice(draw: Draw, dtype: torch.dtype) -> Call:
    shape = _shape(draw)
    return [_tensor(draw, *shape) > 0, *(_tensor(draw, *shape, dtype=dtype) for _ in range(2))], {}


def _with_number(draw: Draw, dtype: torch.dtype, place: int) -> Call:
    """A choice whose number stands at this place."""
    args, _ = _choice(draw, dtype)
    args[place] = draw(st.sampled_from([0.0, 1.5, -10000.0]))
    return args, {}


def _recurrent(kind: type[nn.RNNBase]) -> Callable[[Draw, torch.dtype], Call]:
    def call(draw: Draw, dtype: torch.dtype) -> Call:
        width, hidden, layers, batch = (draw(st.integers(1, 3)) for _ in range(4))
        biases, both, first = (draw(st.booleans()) for _ in range(3))
        torch.manual_seed(draw(st.integers(0, 1000)))
        made = kind(width, hidden, layers, bias=biases, bidirectional=both).to(dtype)  # type: ignore[call-arg]
        params = [weight.detach() for weight in made._flat_weights if weight is not None]
        state = _tensor(draw, layers * (1 + both), batch, hidden, dtype=dtype)
        length = draw(st.integers(1, 9))
        frames = _tensor(draw, *((batch, length) if first else (length, batch)), width, dtype=dtype)
        states = [state, state * 0.5] if kind is nn.LSTM else state
        return [frames, states, params, biases, layers, 0.0, False, both, first], {}

    return call


def _beside_number(draw: Draw, dtype: torch.dtype) -> Call:
    return [_plain(draw, dtype), draw(st.sampled_from([0, 2, -1.5, 1e-12, -1e9]))], {}


_SHAPED = ("softmax.int", "unbind.int", "squeeze.dim", "unsqueeze.default")
_EACH = ("mish", "hardsigmoid", "silu", "hardswish", "gelu", "alias")
CALLS: dict[str, Callable[[Draw, torch.dtype], Call]] = {
    **dict.fromkeys((f"{name}.default" for name in _EACH), _elementwise),
    **dict.fromkeys(_SHAPED, _one_dim),
    **dict.fromkeys((*(f"{name}.Tensor" for name in ("add", "sub", "mul")), "rsub.Scalar"), _beside_number),
    "div.Tensor": lambda draw, dtype: ([_plain(draw, dtype), draw(st.sampled_from([2, -1.5, 1e-12]))], {}),
    "mean.dim": _reduced,
    "scaled_dot_product_attention.default": _attention,
    "matmul.default": _matmul,
    "avg_pool2d.default": _pool,
    "adaptive_avg_pool2d.default": lambda draw, dtype: (
        [_tensor(draw, 1, 2, draw(small), 4, dtype=dtype), [draw(st.integers(1, 6)), draw(small)]],
        {},
    ),
    "glu.default": _glu,
    "adaptive_avg_pool1d.default": lambda draw, dtype: (
        [_tensor(draw, draw(small), 2, 6, dtype=dtype), [draw(st.integers(1, 8))]],
        {},
    ),
    "slice.Tensor": _step,
    "narrow.default": _narrow,
    "pow.Tensor_Scalar": lambda draw, dtype: ([_plain(draw, dtype).abs(), draw(POWERS)], {}),
    "layer_norm.default": _norm,
    "group_norm.default": _group_norm,
    "lstm.input": _recurrent(nn.LSTM),
    "gru.input": _recurrent(nn.GRU),
    "where.self": _choice,
    "where.ScalarOther": lambda draw, dtype: _with_number(draw, dtype, 2),
    "where.ScalarSelf": lambda draw, dtype: _with_number(draw, dtype, 1),
    "chunk.default": _chunk,
    "split.Tensor": _chunk,
    "split_with_sizes.default": _split,
    "select.int": _select,
    "squeeze.dims": lambda draw, dtype: ([_tensor(draw, 2, 1, 3, 1, dtype=dtype), [1, 3]], {}),
    "roll.default": _roll,
    "masked_fill.Scalar": _masked,
}


def test_every_rewrite_of_the_catalogue_is_tried() -> None:
    graphs = {
        "aten.permute.default",
        "aten.transpose.int",
        "aten.conv2d.default",
    }  # what stands before them matters
    tried = {f"aten.{name}" for name in CALLS} | {"aten.masked_fill.Tensor"} | graphs
    named = {name for kind in CATALOGUE.values() for each in kind for name in each.operators}
    assert tried == set(BY_OPERATOR) == named


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_rewrite_equals_its_operator_or_refuses(name: str, dtype: torch.dtype, data: st.DataObject) -> None:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload)
    args, kwargs = CALLS[name](data.draw, dtype)
    wanted = operator(*args, **kwargs)
    parameters = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(parameters, args, strict=False)) | kwargs
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    several = isinstance(wanted, list | tuple)
    for rewrite in BY_OPERATOR[f"aten.{name}"]:
        if "operator" in inspect.signature(rewrite.replacement).parameters:
            given["operator"] = f"aten.{name}"
        with contextlib.suppress(Unfit):
            made = rewrite.replacement(**given)
            torch.testing.assert_close(
                list(made) if several else made, list(wanted) if several else wanted, **close
            )


class RepeatedHeads(nn.Module):
    """As transformers writes grouped heads: keys and values are repeated for each group of the queries'."""

    def forward(self, x: torch.Tensor, few: torch.Tensor) -> torch.Tensor:
        many = few[:, :, None].expand(2, 3, 4, 5, 6).reshape(2, 12, 5, 6)
        keys, values = many, (few * 2)[:, :, None].expand(2, 3, 4, 5, 6).reshape(2, 12, 5, 6)
        return functional.scaled_dot_product_attention(x, keys, values, is_causal=True)


def test_heads_are_not_copied_and_equal_masks_computed_once() -> None:
    inputs = torch.randn(2, 12, 5, 6), torch.randn(2, 3, 5, 6)
    program = torch.export.export(RepeatedHeads(), inputs)
    module, applied = rewrite_graph(program, names())
    assert "attention" in {each.rewrite for each in applied}
    assert not [node for node in module.graph.nodes if "expand" in str(node.target)]
    torch.testing.assert_close(module(*inputs), RepeatedHeads()(*inputs))
    inputs = torch.randn(1, 2, 5, 4), torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    module, applied = rewrite_graph(torch.export.export(OneMask(), inputs), names())
    assert [each.rewrite for each in applied] == ["attention"] * 2
    assert [node.target for node in module.graph.nodes].count("to") == 1
    torch.testing.assert_close(module(*inputs), OneMask()(*inputs))


class LayoutChanges(nn.Module):
    def __init__(self, order: list[int], pair: tuple[int, int]) -> None:
        super().__init__()
        self.order, self.pair = order, pair

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().permute(self.order).transpose(*self.pair).exp()


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.tuples(st.integers(-4, 3), st.integers(-4, 3)))
def test_two_layout_changes_become_one_or_none(order: list[int], pair: tuple[int, int]) -> None:
    x, model = torch.randn(2, 3, 4, 5), LayoutChanges(order, pair)
    module, applied = rewrite_graph(torch.export.export(model, (x,)), ("layout changes",))
    targets = [str(node.target) for node in module.graph.nodes]
    left = [target for target in targets if "permute" in target or "transp" in target]
    assert len(applied) == 1 and len(left) == int(model(x).shape != x.shape)
    torch.testing.assert_close(module(x), model(x))


class Padded(nn.Module):
    """Convolutions behind paddings: two that they can take over, and four that they cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1, stride=2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        around = [functional.pad(x, each) for each in ((1, 1, 2, 2), (0, 0, 0, 0), (0, 1, 0, 1))]
        changed, source = functional.pad(x, (1, 1, 1, 1)), x * 2
        before = functional.pad(source, (1, 1, 1, 1))
        outputs = [self.conv(each) for each in (*around, functional.pad(x, (1, 1, 1, 1), value=1))]
        written = changed[:, :, 3].add_(5), source.add_(3)
        return *outputs, *written, self.conv(changed), self.conv(before)


def test_a_convolution_takes_over_the_padding_before_it() -> None:
    x, model = torch.randn(1, 2, 8, 9), Padded()
    module, applied = rewrite_graph(torch.export.export(model, (x,)), names())
    assert [each.rewrite for each in applied if each.rewrite == "padding"] == ["padding"] * 2
    assert [str(node.target) for node in module.graph.nodes].count("aten.pad.default") == 4
    torch.testing.assert_close(module(x), model(x))


class Repeats(nn.Module):
    """The same product twice, and, if `in_place`, a result that is written into."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.linear, self.in_place = nn.Linear(3, 3), in_place

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = self.linear(x.cos()) + self.linear(x.cos())
        changed, kept = x.sin(), x.sin()
        if self.in_place:
            changed.view(-1).mul_(2)
        return twice, changed, kept


@pytest.mark.parametrize("in_place", [False, True])
def test_equal_work_is_done_once_unless_something_is_written_in_place(in_place: bool) -> None:
    x = torch.randn(4, 3)
    program = torch.export.export(Repeats(in_place=in_place), (x,))
    module, applied = rewrite_graph(program, ("repeats",))
    merged = [] if in_place else ["aten.cos.default", "aten.linear.default", "aten.sin.default"]
    assert sorted(each.operator for each in applied) == merged
    torch.testing.assert_close(module(x), program.module()(x))


class OneMask(nn.Module):
    """Attention twice, with the same mask of truth values, as in every layer of a text model."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return x


class Varying(nn.Module):
    """Calls of the catalogue on a batch and a length that vary."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen = functional.scaled_dot_product_attention(x, x, x, attn_mask=x[:, :1] @ x[:, :1].mT > 0)
        one, other = functional.glu(x, 1).chunk(2, 1)
        first, *_ = x.roll(1, 1).unbind(1)
        shapes = (x[:, 2], x.unsqueeze(1).squeeze(1), x @ x.mT, x.mean(-1), x.softmax(1))
        return (
            *(seen, one, other, first, *shapes),
            *(functional.mish(x), functional.hardsigmoid(x), functional.gelu(x), x**3),
            functional.layer_norm(x, (6,)),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("batch", [2, None])
def test_sizes_that_vary_still_vary(batch: int | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    length, counted = torch.export.Dim("length", min=2, max=64), torch.export.Dim("batch", min=2, max=8)
    varying = ({2: length} if batch else {0: counted, 2: length},)
    x = torch.randn(2, 4, 5, 6, dtype=dtype)
    program = torch.export.export(Varying(), (x,), dynamic_shapes=varying)
    module, applied = rewrite_graph(program, names())
    again = torch.export.export(module, (x,), dynamic_shapes=varying).module()
    fitting = {"attention", "glu", "slices", "roll", "reshapes", "means", "softmax", "mish", "hard sigmoid"}
    fitting |= {"powers", "layer norm", *(["batched matmul"] if batch else [])}
    assert {each.rewrite for each in applied} >= fitting
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    for sizes in ((2, 2), (batch or 7, 33)):
        x = torch.randn(sizes[0], 4, sizes[1], 6, dtype=dtype)
        torch.testing.assert_close(again(x), Varying()(x), **close)
