"""Remarks that a person should know before trusting a result, grouped into one line per kind for display.

Terminal, report and JSON all show `warning_lines`, so they agree on the text and the order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from model_profiling.config.series import Series
from model_profiling.core.formatting import listing, span


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
    advice: str = ""

    @property
    def said(self) -> str:
        """The text without its series."""
        return f"{self.seen}; {self.advice}" if self.advice else self.seen

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
"""How many experiments a line names."""
_FIGURE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(?![\w.]*\w)")


def warning_lines(remarks: Iterable[Diagnostic], known: Collection[Series] = ()) -> tuple[WarningLine, ...]:
    """Return one line per kind with the series it concerns, the most important first. Names say only what
    tells a series from the others in `known`."""
    kinds: dict[str, list[Diagnostic]] = {}
    for remark in dict.fromkeys(remarks):
        kinds.setdefault(remark.code, []).append(remark)
    lines = [_line(found, known) for found in kinds.values()]
    return tuple(sorted(lines, key=lambda line: (line.weight, _ORDER.get(line.kind, len(_ORDER)))))


def name_series(series: Collection[Series], known: Collection[Series] = ()) -> str:
    """For example `a and b, 1 and 2 threads; c, 4 threads`; without what all of `known` have in common."""
    strange = not set(series) <= set(known)
    experiments = strange or len({found.experiment for found in known}) > 1
    counted = strange or len({found.threads for found in known if found.threads}) > 1
    threads: dict[str, list[int]] = {}
    for found in series:
        counts_of = threads.setdefault(found.experiment, [])
        counts_of += [found.threads] if found.threads and found.threads not in counts_of else []
    alike: dict[tuple[int, ...], list[str]] = {}
    for experiment, counts in threads.items():
        alike.setdefault(tuple(sorted(counts)), []).append(experiment)
    parts = (
        ((_some(names) if experiments else ""), (_with_threads(counts) if counted else ""))
        for counts, names in alike.items()
    )
    return "; ".join(", ".join(filter(None, part)) for part in parts)


def _some(names: Sequence[str]) -> str:
    left = len(names) - _NAMED
    return listing(names) if left <= 1 else listing((*names[:_NAMED], f"{left} more"))


def _with_threads(counts: Sequence[int]) -> str:
    if not counts:
        return ""
    return f"{listing(map(str, counts))} thread{'' if tuple(counts) == (1,) else 's'}"


def _line(remarks: Sequence[Diagnostic], known: Collection[Series]) -> WarningLine:
    first = remarks[0]
    series = tuple(dict.fromkeys(remark.series for remark in remarks if remark.series))
    return WarningLine(first.code, first.weight, series, _text(remarks, known))


def _text(remarks: Sequence[Diagnostic], known: Collection[Series]) -> str:
    """Join remarks of one kind; texts that differ are shown with their series."""
    first = remarks[0]
    advice = first.advice if len({remark.advice for remark in remarks}) == 1 else None
    apart: dict[str, list[Diagnostic]] = {}
    for remark in remarks:
        apart.setdefault(remark.said if advice is None else remark.seen, []).append(remark)
    if advice is not None and first.weight is Weight.UNSTABLE and (one := _with_ranges(list(apart))):
        apart = {one: list(remarks)}
    said = [_named(found, text, known) for text, found in apart.items()]
    if len(said) > _SHOWN:
        said[_SHOWN:] = [f"and {len(said) - _SHOWN} more"]
    return "; ".join([*said, *([advice] if advice else [])])


def _named(remarks: Sequence[Diagnostic], text: str, known: Collection[Series]) -> str:
    names = name_series([remark.series for remark in remarks if remark.series], known)
    return f"{names}: {text}" if names else text


def _with_ranges(texts: Sequence[str]) -> str | None:
    """Merge texts that differ only in figures, by ranges; None if the words differ."""
    parts = [_FIGURE.split(text) for text in texts]
    if len({tuple(part[::2]) for part in parts}) > 1:
        return None
    together = list(parts[0])
    together[1::2] = [_range(figures) for figures in zip(*(part[1::2] for part in parts), strict=True)]
    return "".join(together)


def _range(figures: Sequence[str]) -> str:
    return span(min(figures, key=float), max(figures, key=float))
