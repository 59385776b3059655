"""Transposes that undo each other: between them data is only reshaped or worked on element by element."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from model_profiling.program.flow import Flow, Step
from model_profiling.program.records import Tensor

_RESHAPES = frozenset(
    {"StaticReshape", "et_view", "flatten", "reshape", "squeeze_copy", "unsqueeze_copy", "view_copy"}
)  # fmt: skip
_COPIES = frozenset({"Copy", "clone", "_clone_dim_order", "alias_copy"})
_EACH_ELEMENT = frozenset(
    {
        "Abs", "Add", "Ceiling", "Clamp", "Convert", "Cos", "Div", "ELU", "Exp", "Floor", "Gelu", "Hardswish",
        "LeakyReLU", "Log", "Maximum", "Minimum", "Multiply", "Negate", "ReciprocalSquareRoot", "Sigmoid",
        "Sin", "Square", "SquareRoot", "Subtract", "Tanh", "abs", "add", "clamp", "div", "exp", "gelu",
        "hardtanh", "mul", "neg", "relu", "rsqrt", "sigmoid", "silu", "sqrt", "sub", "tanh",
    }
)  # fmt: skip
_LONGEST = 16
"""Steps between two transposes that are looked at."""


@dataclass(frozen=True, slots=True)
class Undone:
    """Transposes that together leave every element where it was."""

    transposes: tuple[Step, ...]
    """Those that could be left out, in the order they run."""
    partners: tuple[Step, ...]
    """Those that take part but have to stay, because something else needs what they make."""


def undone_transposes(flow: Flow) -> tuple[Undone, ...]:
    """Every group of them, none in two groups."""
    found: list[Undone] = []
    taken: set[int] = set()
    for step in flow.steps if flow.straight else ():
        if step.permutation and flow.at[step.place] not in taken:
            undone = _undone_by(flow, step, taken)
            if undone is not None:
                found.append(undone)
                taken.update(flow.at[each.place] for each in undone.transposes)
    return tuple(found)


def _undone_by(flow: Flow, last: Step, taken: set[int]) -> Undone | None:
    """The shortest chain that ends with the transpose `last` and moves nothing."""
    path = [last]
    while len(path) < _LONGEST:
        before = _only_source(flow, path[0])
        if before is None or flow.at[before.place] in taken or not _keeps_elements(flow, before):
            return None
        path.insert(0, before)
        if before.permutation and _moves_nothing(path):
            return _removable(flow, path)
    return None


def _removable(flow: Flow, path: Sequence[Step]) -> Undone | None:
    """What of a chain that moves nothing can be left out: all of it if nothing else looks at what is between,
    else only the last transpose, whose result is there already unless elements were worked on."""
    transposes = tuple(step for step in path if step.permutation)
    alone = all(
        not flow.returned(step)
        and {flow.at[user.place] for user in flow.after(step)} == {flow.at[after.place]}
        for step, after in itertools.pairwise(path)
    )
    if alone:
        return Undone(transposes, ())
    if any(step.name in _EACH_ELEMENT for step in path[1:-1]):
        return None
    return Undone(transposes[-1:], transposes[:-1])


def _only_source(flow: Flow, step: Step) -> Step | None:
    """The step that makes the only thing that varies in what `step` reads."""
    varying = set(flow.varying(step))
    if len(varying) != 1:
        return None
    (value,) = varying
    return flow.steps[flow.made_by[value]] if value in flow.made_by else None


def _keeps_elements(flow: Flow, step: Step) -> bool:
    """It moves data, or works on each element alike."""
    if len(step.outputs) != 1:
        return False
    if step.permutation or step.name in _RESHAPES or step.name in _COPIES:
        return True
    if step.name not in _EACH_ELEMENT:
        return False
    fixed = [each for each in step.inputs if each.constant]
    return all(each.elements == 1 for each in fixed) and len(flow.varying(step)) == 1


def _moves_nothing(path: Sequence[Step]) -> bool:
    if not path[0].inputs:
        return False
    order = _Order.of(path[0].inputs[0])
    for step in path:
        moved = (
            order.permuted(step.permutation) if step.permutation else order.reshaped(step.outputs[0].shape)
        )
        if not moved:
            return False
    return order.as_it_was


@dataclass(slots=True)
class _Order:
    """Where the dimensions of a tensor went: each is a row of factors, split where a reshape splits them.
    Dimensions of one element are no factors: they can stand anywhere."""

    sizes: dict[int, int] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    """Factors as they were in memory to begin with."""
    axes: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, tensor: Tensor) -> _Order:
        sizes = dict(enumerate(tensor.shape))
        axes = [[axis] if size != 1 else [] for axis, size in sizes.items()]
        return cls(sizes, [axis for axis, size in sizes.items() if size != 1], axes)

    @property
    def as_it_was(self) -> bool:
        return [factor for axis in self.axes for factor in axis] == self.first

    def permuted(self, permutation: Sequence[int]) -> bool:
        if sorted(permutation) != list(range(len(self.axes))):
            return False
        self.axes = [self.axes[axis] for axis in permutation]
        return True

    def reshaped(self, shape: Sequence[int]) -> bool:
        """False where the new dimensions cut across the old ones."""
        left = [factor for axis in self.axes for factor in axis]
        axes: list[list[int]] = []
        for size in shape:
            axis = self._taken(left, size)
            if axis is None:
                return False
            axes.append(axis)
        self.axes = axes
        return not left

    def _taken(self, left: list[int], size: int) -> list[int] | None:
        """The first factors of `left` that make a dimension of `size`, taken from it."""
        axis: list[int] = []
        while size > 1:
            if not left:
                return None
            have = self.sizes[left[0]]
            if have > size and have % size == 0:
                self._split(left, size)
                have = size
            if size % have:
                return None
            size //= have
            axis.append(left.pop(0))
        return axis

    def _split(self, left: list[int], outer: int) -> None:
        """Make the first factor of `left` one of `outer` elements and one of the rest."""
        whole, inner = left[0], len(self.sizes)
        self.sizes[inner] = self.sizes[whole] // outer
        self.sizes[whole] = outer
        left.insert(1, inner)
        self.first.insert(self.first.index(whole) + 1, inner)
