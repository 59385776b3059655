"""What stayed outside the backend and why: written beside a program when it is exported, read wherever it is
explained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

WhyOutside = Literal["no rule", "refused", "dropped", "portable"]
"""The backend has no such operator; has it and refused this one; took it and gave it back; takes nothing."""

NOTHING_KNOWN = "nothing known helps"
COMPUTED_ONCE = "a buffer (register_buffer) that is computed once: no input of the model changes it"
"""The replacement of what no input reaches, where the call that makes it has none of its own."""
NO_INTEGERS = f"{NOTHING_KNOWN}: XNNPACK takes no integers and no booleans"
_MOST_PLACES = 3
"""That are named for one reason; the record of the export names all."""
_WHOLE_NUMBERS = frozenset({"int64", "int32", "int16", "bool"})


@dataclass(frozen=True, slots=True)
class Undelegated:
    """An operator that stayed outside the backend, and why; what is not known is empty."""

    operator: str
    node: str
    module_path: str
    reason: str
    """The partitioner's own, where it gave one."""
    why: WhyOutside
    module_class: str = ""
    call: str = ""
    """What the model called: lowering takes a `hardsigmoid` apart into several operators."""
    source: str = ""
    """`model.py:12`."""
    code: str = ""
    """The line itself."""
    dtype: str = ""
    """Of what it makes."""
    reads: str = ""
    """The dtypes of what it is given."""
    constant: bool = False
    """It computes the same whatever the model is given."""
    replacement: str = ""
    """What to write instead, where something is known to help."""
    method: str = "forward"
    instruction: int = -1
    """Which instruction of the method runs it; -1 where lowering did away with it afterwards."""

    @property
    def replaced_as_a_call(self) -> bool:
        """Whether another call is to be written instead: nothing of the old one is left to compute once."""
        return self.replacement not in ("", COMPUTED_ONCE)

    def with_replacement(self, text: str) -> Undelegated:
        return replace(self, replacement=text)

    @property
    def remedy(self) -> str:
        """What to write instead, or that nothing is known."""
        if self.replacement:
            return f"instead: {self.replacement}"
        if self.why == "portable":
            return ""
        given = f"{self.dtype}, {self.reads}".split(", ")
        return NOTHING_KNOWN if _WHOLE_NUMBERS.isdisjoint(given) else NO_INTEGERS


@dataclass(frozen=True, slots=True)
class OutsideGroup:
    """Operators outside the backend for one reason, in one kind of call at one line of the model."""

    call: str
    why: WhyOutside
    reason: str
    replacement: str
    operators: tuple[tuple[str, int], ...]
    """Each with how many there are, most first."""
    modules: tuple[str, ...]
    sources: tuple[str, ...]
    """The line, where it is known: `model.py:12: the line`."""
    remedy: str = ""
    """What to write instead, or that nothing is known to help."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.operators)

    @property
    def text(self) -> str:
        """`2 x aten.gelu.default: GELU does not support fp16`."""
        named = ", ".join(f"{count} x {operator}" for operator, count in self.operators)
        same = all(self.call in operator for operator, _ in self.operators)
        return f"{named}{'' if same else f' in {self.call}'}: {self.reason}"

    @property
    def places(self) -> tuple[str, ...]:
        """`in features.0, features.2`, `at model.py:12: the line`."""
        return tuple(
            f"{word}{', '.join(names[:_MOST_PLACES])}{_more(len(names) - _MOST_PLACES)}"
            for word, names in (("in ", self.modules), ("at ", self.sources))
            if names
        )


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def group_outside(undelegated: Iterable[Undelegated]) -> tuple[OutsideGroup, ...]:
    """By line and reason; what one call of the model leaves outside stands together, the most first."""
    found: dict[tuple[str, ...], list[Undelegated]] = {}
    for left in undelegated:
        key = (left.call, left.why, left.reason, left.replacement, left.remedy, left.source, left.code)
        found.setdefault(key, []).append(left)
    groups = tuple(_group(lefts) for lefts in found.values())
    alike, at_line = Counter[tuple[str, str]](), Counter[tuple[str, str, tuple[str, ...]]]()
    for group in groups:
        alike[group.call, group.remedy] += group.count
        at_line[group.call, group.remedy, group.sources] += group.count
    return tuple(
        sorted(
            groups,
            key=lambda group: (
                -alike[group.call, group.remedy],
                group.call,
                group.remedy,
                -at_line[group.call, group.remedy, group.sources],
                group.sources,
                -group.count,
            ),
        )
    )


def _group(lefts: Sequence[Undelegated]) -> OutsideGroup:
    first = lefts[0]
    line = f"{first.source}{f': {first.code}' if first.code else ''}"
    return OutsideGroup(
        first.call,
        first.why,
        first.reason,
        first.replacement,
        operators=tuple(Counter(left.operator for left in lefts).most_common()),
        modules=tuple(dict.fromkeys(left.module_path for left in lefts if left.module_path)),
        sources=(line,) if line else (),
        remedy=first.remedy,
    )


def described(groups: Sequence[OutsideGroup]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each group's line, and the lines below it: where that is and what to write instead. They are given once
    for groups that share them, below the last."""
    for group, following in zip_longest(groups, groups[1:]):
        same_call = following is not None and following.call == group.call
        places = () if same_call and following and following.places == group.places else group.places
        said = same_call and following is not None and following.remedy == group.remedy
        yield group.text, (*places, *((group.remedy,) if group.remedy and not said else ()))
