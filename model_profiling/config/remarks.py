"""Remarks that a person should know before trusting a result, grouped into one line per kind for display.

Terminal, report and JSON all show `warning_lines`, so they agree on the text and the order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from model_profiling.config.series import Series
from model_profiling.core.formatting import span


class Weight(IntEnum):
    """How much a remark matters; the smallest is shown first."""

    OUTPUTS = 0
    """Outputs differ: no speed counts until that is understood."""
    FAILED = 1
    """Something requested is missing."""
    WRONG = 2
    """A figure may be wrong, or describe something else."""
    UNSTABLE = 3
    """A figure is less certain than it could be."""
    INFORMATION = 4


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One remark about a series or the whole run; `code` is its kind, for programs."""

    series: Series | None
    code: str
    seen: str
    """With `{}` for each of `numbers`."""
    advice: str = ""
    numbers: tuple[float, ...] = ()
    """The figures in it: remarks that differ only in these are shown as one, with ranges."""

    @property
    def said(self) -> str:
        """The text without its series."""
        return "; ".join(filter(None, (_with_ranges((self,)), self.advice)))

    def __str__(self) -> str:
        return f"{self.series}: {self.said}" if self.series else self.said

    @property
    def weight(self) -> Weight:
        return _WEIGHTS.get(self.code, Weight.INFORMATION)


@dataclass(frozen=True, slots=True)
class WarningLine:
    """All remarks of one kind; `series` is empty if they concern the whole run."""

    kind: str
    weight: Weight
    series: tuple[Series, ...]
    text: str

    def __str__(self) -> str:
        return self.text


NOTE = "note"
"""The kind of remarks from an earlier kit, which had none."""

# Kinds in display order; any other kind is information.
_KINDS = {
    Weight.OUTPUTS: "outputs accuracy",
    Weight.FAILED: "failed not_tested nothing",
    Weight.WRONG: "unlike misfit wrong_program features damaged_dump missing_dump damaged_journal "
    "unknown_machine hidden structure cut_short outside overlap longest_input",
    Weight.UNSTABLE: "quick settings unlocked threads governor battery heat hot busy unchecked rounds runs "
    "warmup",
}
_WEIGHTS = {code: weight for weight, codes in _KINDS.items() for code in codes.split()}
KINDS = frozenset(_WEIGHTS)
_ORDER = {code: place for place, code in enumerate(_WEIGHTS)}
_SHOWN = 4
"""How many different texts of one kind are shown."""
_NAMED = 12
"""How many series a line names."""


def warning_lines(remarks: Iterable[Diagnostic], known: Collection[Series] = ()) -> tuple[WarningLine, ...]:
    """Return one line per kind with the series it concerns, the most important first. Names say only what
    tells a series from the others in `known`."""
    kinds: dict[str, list[Diagnostic]] = {}
    for remark in dict.fromkeys(remarks):
        kinds.setdefault(remark.code, []).append(remark)
    lines = [
        WarningLine(
            kind,
            alike[0].weight,
            tuple(dict.fromkeys(remark.series for remark in alike if remark.series)),
            _text(alike, known),
        )
        for kind, alike in kinds.items()
    ]
    return tuple(sorted(lines, key=lambda line: (line.weight, _ORDER.get(line.kind, len(_ORDER)))))


def name_series(series: Collection[Series], known: Collection[Series] = ()) -> str:
    """For example `a, 1 thread; a, 2 threads`; without what all of `known` have in common."""
    strange = not set(series) <= set(known)
    names = dict.fromkeys(str(one) if strange else one.among(known) for one in series)
    listed = [name for name in names if name]
    if len(listed) > _NAMED + 1:
        listed[_NAMED:] = [f"{len(listed) - _NAMED} more"]
    return "; ".join(listed)


def _text(remarks: Sequence[Diagnostic], known: Collection[Series]) -> str:
    """Join remarks of one kind; texts that differ are shown with their series."""
    first = remarks[0]
    advice = first.advice if len({remark.advice for remark in remarks}) == 1 else None
    alike: dict[tuple[str, str], list[Diagnostic]] = {}
    for remark in remarks:
        alike.setdefault((remark.seen, remark.advice), []).append(remark)
    lines = []
    for (_, own), members in alike.items():
        names = name_series([remark.series for remark in members if remark.series], known)
        text = "; ".join(filter(None, (_with_ranges(members), own if advice is None else "")))
        lines.append(f"{names}: {text}" if names else text)
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"and {len(lines) - _SHOWN} more"]
    return "; ".join([*lines, *([advice] if advice else [])])


def _with_ranges(remarks: Sequence[Diagnostic]) -> str:
    """The text of remarks that differ only in their numbers."""
    columns = zip(*(remark.numbers for remark in remarks), strict=False)
    text = remarks[0].seen
    for column in columns:
        text = text.replace("{}", span(f"{min(column):g}", f"{max(column):g}"), 1)
    return text
