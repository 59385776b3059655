"""The model's modules as a tree, with the operators that each holds: what a flame graph is drawn of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model_profiling.analysis.operators import Operator

LOWERING, BACKEND = "inserted by lowering", "added by the backend"
THE_MODEL, UNKNOWN = "the model itself", "place not known"
_DEEPEST = 40
"""Parts of a path that become modules of their own; nobody's model is deeper, a damaged record may be."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module, or a group of operators that no module holds (its name then says which)."""

    path: str
    """`features.0`; empty for the whole model."""
    name: str
    """The last part of it."""
    operators: tuple[tuple[Operator, ...], ...]
    """For each side, those inside it, however deep."""
    children: tuple[Module, ...]
    """In the order they first run."""

    def every(self) -> Iterator[Module]:
        """Itself and all below it, each before what it holds."""
        yield self
        for child in self.children:
            yield from child.every()


def module_tree(*sides: Sequence[Operator]) -> Module:
    """The modules of one series, or of two side by side."""
    members: dict[tuple[str, ...], list[list[Operator]]] = {(): [[] for _ in sides]}
    for side, operators in enumerate(sides):
        for operator in operators:
            parts = module_parts(operator)
            for depth in range(len(parts) + 1):
                members.setdefault(parts[:depth], [[] for _ in sides])[side].append(operator)
    below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for parts in members:
        if parts:
            below.setdefault(parts[:-1], []).append(parts)
    return _module((), members, below)


def _module(
    parts: tuple[str, ...],
    members: dict[tuple[str, ...], list[list[Operator]]],
    below: dict[tuple[str, ...], list[tuple[str, ...]]],
) -> Module:
    return Module(
        path=".".join(parts),
        name=parts[-1] if parts else "",
        operators=tuple(map(tuple, members[parts])),
        children=tuple(_module(child, members, below) for child in below.get(parts, ())),
    )


def module_parts(operator: Operator) -> tuple[str, ...]:
    """The modules around an operator, the outermost first; where none is, what is known instead."""
    if operator.source.module_path:
        return tuple(operator.source.module_path.split(".", _DEEPEST))
    match operator.origin:
        case "lowering":
            return (LOWERING,)
        case "backend":
            return (BACKEND,)
        case "model":
            return (THE_MODEL,)
        case "unknown":
            return (UNKNOWN,)
