"""What a rewrite is, how one is registered, and what it may ask of a tensor or its proxy.

A rewrite is a plain PyTorch function with the parameters of an ATen operator. It raises `Unfit` for arguments
that it cannot or need not change. `rewritten.py` puts it in place of the operator in an exported graph, where
tensors are proxies: `sizes`, `dtype_of` and `is_constant` answer for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.records import read_record

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
    """`instead` is what a person would write in their own model."""

    name: str
    operators: tuple[str, ...]
    why: str
    instead: str
    replacement: Replacement


CATALOGUE: dict[str, list[Rewrite]] = {}
"""By name. Rewrites of one name are kept or dropped together. `rewrites.py` fills it."""
BY_OPERATOR: dict[str, Rewrite] = {}
CONSTANTS = "constants"
"""What no input reaches is computed once, when the program is made."""
CONSTANTS_WHY = "what no input reaches is computed in every inference"
CONSTANTS_INSTEAD = "self.register_buffer(name, value), computed in __init__"
ONLY_IF_MEASURED = ("layer norm", "group norm")
"""Rewrites that join delegates and may still be slower: without times they are left out."""


def rewrite(name: str, *operators: str, why: str, instead: str) -> Callable[[Replacement], Replacement]:
    def register(replacement: Replacement) -> Replacement:
        made = Rewrite(name, operators, why, instead, replacement)
        CATALOGUE.setdefault(name, []).append(made)
        BY_OPERATOR.update(dict.fromkeys(operators, made))
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


def is_constant(tensor: Tensor) -> bool:
    """Whether no input reaches it."""
    node = getattr(tensor, "node", None)
    return True if node is None else bool(node.meta.get("is_constant"))


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


# Which rewrites `--optimize` applies: what `sme2prof optimize` kept, or what helps by structure.

OPTIMIZATION = "optimization.json"
Optimize = bool | StrPath | tuple[str, ...]
"""Nothing (False), what is usual (True), a saved choice (its file, or the folder of it), or names."""
_AGAIN = "run `sme2prof optimize` again, or give --optimize without a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChoice:
    """What is read of `optimization.json` to apply it again."""

    schema_version: Literal[1] = 1
    model: str
    source: str
    kept: tuple[str, ...]

    def is_for(self, model: str, source: str) -> bool:
        return self.model == model or self.source == source


def chosen_rewrites(optimize: Optimize, model: str, source: str, program: Path) -> tuple[str, ...] | None:
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
    return tuple(name for name in _known() if name not in ONLY_IF_MEASURED)


def _known() -> tuple[str, ...]:
    from model_profiling.export.rewrites import names

    return names()


def known_rewrites(given: tuple[str, ...]) -> tuple[str, ...]:
    known = _known()
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
    unknown = [name for name in choice.kept if name not in _known()]
    if unknown:
        raise InputError(f"{path} has the rewrite '{unknown[0]}', which this kit does not have", _AGAIN)
    return choice
