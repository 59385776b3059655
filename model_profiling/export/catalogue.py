"""What a rewrite is, how one is registered, and what it may ask of a tensor or its proxy.

A rewrite is a plain PyTorch function with the parameters of an ATen operator. It raises `Unfit` for arguments
that it cannot or need not change. `rewritten.py` puts it in place of the operator in an exported graph, where
tensors are proxies: `sizes`, `dtype_of` and `is_constant` answer for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Tensor = Any
"""A tensor, or the proxy of one."""
Size = Any
"""A number, or the proxy of a size that varies."""
Replacement = Callable[..., Any]


class Unfit(Exception):
    """The call's arguments are not those that the rewrite is for."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`instead` is what a person would write in their own model. Without `operators` it is about the whole
    graph: `rewritten.py` does it, or the model itself while it is traced (a cache in place)."""

    name: str
    operators: tuple[str, ...]
    why: str
    instead: str
    replacement: Replacement | None = None


CONSTANTS, REPEATS, CACHE = "constants", "repeats", "cache in place"
CHANNELS_LAST = "channels-last inputs"
CATALOGUE: dict[str, list[Rewrite]] = {
    each.name: [each]
    for each in (
        Rewrite(
            CONSTANTS,
            (),
            why="what no input reaches is computed in every inference",
            instead="self.register_buffer(name, value), computed in __init__",
        ),
        Rewrite(
            REPEATS,
            (),
            why="the same is computed more than once from the same values",
            instead="compute it once, and pass it on",
        ),
        Rewrite(
            CACHE,
            (),
            why="attention of a language model copies and reads the whole cache for every token",
            instead="ExecuTorch's torch.ops.llama.update_cache and custom_sdpa, which write and read the "
            "cache where it is, only as far as it is filled (export_llm: use_sdpa_with_kv_cache=True)",
        ),
        Rewrite(
            CHANNELS_LAST,
            (),
            why="the order of an image's dimensions is changed in every inference",
            instead="export it with image.to(memory_format=torch.channels_last), and give the program all "
            "inputs of four dimensions in this order: it does not notice any other",
        ),
    )
}
"""By name. Rewrites of one name are kept or dropped together. `rewrites.py` adds those of operators."""
BY_OPERATOR: dict[str, list[Rewrite]] = {}
CACHE_OPERATORS = ("llama::custom_sdpa.out", "llama::update_cache.out")
"""In programs with a cache in place; not every target can run them."""
_NORMS = ("layer norm", "group norm")


def needs_times(rewrite: str, dtype: str) -> bool:
    """Whether it may be slower, or cannot run everywhere, so that only times speak for it. In fp16 a norm
    outside the delegate is often wrong (`bench/figures/optimize.md`), and speed is not all."""
    return rewrite == CACHE or (rewrite in _NORMS and dtype != "fp16")


IMAGES_CHANGED = (
    "the program takes inputs of four dimensions with channels last "
    "(x.to(memory_format=torch.channels_last)), and computes something else from others without an error"
)


def rewrite(name: str, *operators: str, why: str, instead: str) -> Callable[[Replacement], Replacement]:
    def register(replacement: Replacement) -> Replacement:
        made = Rewrite(name, operators, why, instead, replacement)
        CATALOGUE.setdefault(name, []).append(made)
        for operator in operators:
            BY_OPERATOR.setdefault(operator, []).append(made)
        return replacement

    return register


def require(condition: object) -> None:
    if not condition:
        raise Unfit


def _value(tensor: Tensor) -> torch.Tensor:
    node = getattr(tensor, "node", None)
    return tensor if node is None else node.meta["val"]


def sizes(tensor: Tensor) -> list[Size]:
    return [size if type(size) is int else tensor.shape[dim] for dim, size in enumerate(_value(tensor).shape)]


def fixed(*values: Size) -> None:
    """Refuse sizes that vary."""
    require(all(type(value) is int for value in values))


def dtype_of(tensor: Tensor) -> torch.dtype:
    return _value(tensor).dtype


def is_half(tensor: Tensor) -> bool:
    import torch

    return bool(dtype_of(tensor) == torch.float16)


def is_floating(tensor: Tensor) -> bool:
    return bool(dtype_of(tensor).is_floating_point)


def made_by(tensor: Tensor, *operators: object) -> Any:
    """The call that made it, if it is of one of these; refuse others, and if something was written since."""
    from model_profiling.export.tracing import writes

    node = getattr(tensor, "node", None)
    require(node is not None and node.target in operators)
    between = tensor.tracer.replaced.prev
    while between is not node:
        require(not writes(between))
        between = between.prev
    return node


def is_constant(tensor: Tensor) -> bool:
    """Whether no input reaches it."""
    node = getattr(tensor, "node", None)
    return True if node is None else bool(node.meta.get("is_constant"))


def part(tensor: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A slice; unlike `narrow`, a quantizer knows it."""
    import torch

    return torch.ops.aten.slice.Tensor(tensor, dim, start, start + length)


def number(like: Tensor, value: float) -> Any:
    """A number beside `like`. In half precision it is a tensor of that dtype: a plain one would be converted
    outside the delegate."""
    return like.new_full((1,), value) if is_half(like) else value


def over_image(tensor: Tensor, dim: Sequence[int] | int | None) -> list[int]:
    """The sizes of the image, if it is reduced as a whole."""
    shape = sizes(tensor)
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    require(len(shape) == 4 and {each % 4 for each in dims} == {2, 3} and is_floating(tensor))
    fixed(*shape)
    return shape[2:]
