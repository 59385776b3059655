"""The rewrites of attention and of products of matrices."""

from __future__ import annotations

import math

from model_profiling.export.catalogue import (
    Size,
    Tensor,
    dtype_of,
    fixed,
    is_floating,
    number,
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
    fixed(*before)
    if all(size == 1 for size in before):
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
