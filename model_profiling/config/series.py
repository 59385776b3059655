"""A series is one experiment at one number of threads; a pair is two series to compare.

All pairs are made here: those a config asks for, otherwise each SME2-off series with its SME2-on match.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from model_profiling.core.formatting import plural, with_threads

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

    def among(self, known: Collection[Series]) -> str:
        """Return what tells it from the others in `known`: its experiment, its threads, both, or nothing."""
        several = [
            len({series.experiment for series in known}) > 1,
            len({series.threads for series in known}) > 1,
        ]
        words = (self.experiment, plural(self.threads, "thread") if self.threads else "")
        return ", ".join(text for text, needed in zip(words, several, strict=True) if text and needed)

    def spoken(self, known: Collection[Series]) -> str:
        """Return it as `among` does, but never nothing: a series alone is named by its threads."""
        return self.among(known) or (plural(self.threads, "thread") if self.threads else self.experiment)


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


_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")


def first_of_each(items: Iterable[tuple[_Key, _Found]]) -> dict[_Key, _Found]:
    """Index items by key; the first item of each key wins."""
    first: dict[_Key, _Found] = {}
    for key, item in items:
        first.setdefault(key, item)
    return first


def switch_in_name(text: str) -> Switch | None:
    """Return what a runner's path or an experiment's name says about SME2."""
    lowered = text.lower()
    if any(mark in lowered for mark in _OFF_MARKS):
        return "off"
    return "on" if any(mark in lowered for mark in _ON_MARKS) else None


def switch_in_label(text: str) -> Switch | None:
    """Like `switch_in_name`, for what people call a side: `SME2 off`, `Off`."""
    if said := switch_in_name(text.replace(" ", "_")):
        return said
    words = {word.lower() for word in _BARE.findall(text)}
    return None if len(words) != 1 else "off" if "off" in words else "on"


def make_pair(baseline: Series, candidate: Series, label: str | None = None) -> Pair:
    return Pair(label or default_label(baseline, candidate), baseline, candidate)


def default_label(baseline: Series, candidate: Series) -> str:
    """For example `on vs off, 1 thread`: the candidate first, the baseline second."""
    if baseline.threads == candidate.threads:
        return with_threads(f"{candidate.experiment} vs {baseline.experiment}", candidate.threads)
    return f"{candidate} vs {baseline}"


def natural_pairs(switches: Iterable[tuple[Series, Switch | None]]) -> tuple[Pair, ...]:
    """Pair each SME2-off series with the SME2-on series that differs only in the switch."""
    sides = list(switches)
    bare = {series.experiment: _bare(series.experiment) for series, _ in sides}
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


def _bare(name: str) -> str:
    return without_switch(name.lower(), "")
