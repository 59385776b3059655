"""A series is one experiment at one number of threads; a pair is two series to compare; a remark is about a
series or the whole run.

All pairs are made here: those a config asks for, otherwise each SME2-off series with its SME2-on match.
Remarks are shown as one line per kind: terminal, report and JSON all show `warning_lines`, so they agree on
the text and the order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from model_profiling.core.formatting import plural, span, with_threads

Switch = Literal["on", "off"]

_OFF_MARKS = ("sme2-off", "sme2_off", "no-sme2", "no_sme2", "nosme2", "without_sme2", "without-sme2")
_ON_MARKS = ("sme2-on", "sme2_on")


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """What latencies belong to and files are named after; `threads` is None if a bare file does not tell."""

    experiment: str
    threads: int | None = None

    def __str__(self) -> str:
        return with_threads(self.experiment, self.threads)

    def among(self, others: Collection[Series]) -> str:
        """Return what tells it from `others`: its experiment, its threads, both, or nothing."""
        several = [
            len({series.experiment for series in others}) > 1,
            len({series.threads for series in others}) > 1,
        ]
        words = (self.experiment, plural(self.threads, "thread") if self.threads else "")
        return ", ".join(text for text, needed in zip(words, several, strict=True) if text and needed)

    def spoken(self, others: Collection[Series]) -> str:
        """Return it as `among` does, but never nothing: a series alone is named by its threads."""
        return self.among(others) or (plural(self.threads, "thread") if self.threads else self.experiment)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two series to compare; the speedup is baseline over candidate."""

    label: str
    baseline: Series
    candidate: Series
    not_comparable: str | None = None
    """Why they are not comparable; None if they are."""


@dataclass(frozen=True, slots=True)
class StandsFor:
    """Experiments measured as one, because they differ only in features that the CPU lacks."""

    experiment: str
    names: tuple[str, ...]


def switch_in_name(text: str) -> Switch | None:
    """Return what a runner's path or an experiment's name says about SME2."""
    lowered = text.lower()
    if any(mark in lowered for mark in _OFF_MARKS):
        return "off"
    return "on" if any(mark in lowered for mark in _ON_MARKS) else None


def make_pair(baseline: Series, candidate: Series, label: str | None = None) -> Pair:
    return Pair(label or default_label(baseline, candidate), baseline, candidate)


def default_label(baseline: Series, candidate: Series) -> str:
    """For example `on vs off, 1 thread`, the candidate first; one name if both sides have the same."""
    if baseline == candidate:
        return str(candidate)
    if baseline.threads == candidate.threads:
        return with_threads(f"{candidate.experiment} vs {baseline.experiment}", candidate.threads)
    return f"{candidate} vs {baseline}"


def natural_pairs(switches: Iterable[tuple[Series, Switch | None]]) -> tuple[Pair, ...]:
    """Pair each SME2-off series with the SME2-on series that differs only in the switch."""
    sides = list(switches)
    bare = {series.experiment: without_switch(series.experiment.lower(), "") for series, _ in sides}
    if len(bare) == 2:
        bare = dict.fromkeys(bare, "")  # with only two experiments, there is no other partner
    on: dict[tuple[int | None, str], list[Series]] = {}
    for series, switch in sides:
        if switch == "on":
            on.setdefault((series.threads, bare[series.experiment]), []).append(series)
    return tuple(
        make_pair(before, after)
        for before, switch in sides
        if switch == "off"
        for after in on.get((before.threads, bare[before.experiment]), ())
    )


_BARE = re.compile(r"(?i)(?<![a-z0-9])(on|off)(?![a-z0-9])")
_MARKS = re.compile(
    "|".join(map(re.escape, sorted((*_OFF_MARKS, *_ON_MARKS), key=len, reverse=True))), re.IGNORECASE
)


def without_switch(name: str, instead: str) -> str:
    """Replace the part of `name` that says whether SME2 is on or off."""
    replaced = _MARKS.sub(instead, name)
    return replaced if replaced != name else _BARE.sub(instead, name)


# Remarks that a person should know before trusting a result.


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
    Weight.WRONG: "misfit wrong_program features damaged_dump missing_dump damaged_journal "
    "unknown_machine hidden structure cut_short outside overlap longest_input",
    Weight.UNSTABLE: "quick settings unlocked threads governor battery hot stolen busy unchecked rounds "
    "runs warmup",
}
_WEIGHTS = {code: weight for weight, codes in _KINDS.items() for code in codes.split()}
KINDS = frozenset(_WEIGHTS)
_ORDER = {code: place for place, code in enumerate(_WEIGHTS)}
_SHOWN = 4
"""How many different texts of one kind are shown."""
_NAMED = 12
"""How many series a line names."""


def warning_lines(
    remarks: Iterable[Diagnostic], all_series: Collection[Series] = ()
) -> tuple[WarningLine, ...]:
    """Return one line per kind with the series it concerns, the most important first. Names say only what
    tells a series from the rest of `all_series`."""
    kinds: dict[str, list[Diagnostic]] = {}
    for remark in dict.fromkeys(remarks):
        kinds.setdefault(remark.code, []).append(remark)
    lines = [
        WarningLine(
            kind,
            alike[0].weight,
            tuple(dict.fromkeys(remark.series for remark in alike if remark.series)),
            _text(alike, all_series),
        )
        for kind, alike in kinds.items()
    ]
    return tuple(sorted(lines, key=lambda line: (line.weight, _ORDER.get(line.kind, len(_ORDER)))))


def name_series(series: Collection[Series], all_series: Collection[Series] = ()) -> str:
    """For example `a, 1 thread; a, 2 threads`; without what `all_series` have in common."""
    strange = not set(series) <= set(all_series)
    names = dict.fromkeys(str(one) if strange else one.among(all_series) for one in series)
    listed = [name for name in names if name]
    if len(listed) > _NAMED + 1:
        listed[_NAMED:] = [f"{len(listed) - _NAMED} more"]
    return "; ".join(listed)


def _text(remarks: Sequence[Diagnostic], all_series: Collection[Series]) -> str:
    """Join remarks of one kind; texts that differ are shown with their series."""
    first = remarks[0]
    advice = first.advice if len({remark.advice for remark in remarks}) == 1 else None
    alike: dict[tuple[str, str], list[Diagnostic]] = {}
    for remark in remarks:
        alike.setdefault((remark.seen, remark.advice), []).append(remark)
    lines = []
    for (_, own), members in alike.items():
        names = name_series([remark.series for remark in members if remark.series], all_series)
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
