"""A series is one experiment at one number of threads; a pair is two series to compare.

Pairs are made here only: those a config asks for, else each SME2-off series with the SME2-on one like it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from model_profiling.core.formatting import with_threads

Switch = Literal["on", "off"]

_OFF_MARKS = ("sme2-off", "sme2_off", "no-sme2", "no_sme2", "nosme2", "without_sme2", "without-sme2")
_ON_MARKS = ("sme2-on", "sme2_on")


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """What latencies belong to and files are named after; threads None where bare files do not tell."""

    experiment: str
    threads: int | None = None

    def __str__(self) -> str:
        return with_threads(self.experiment, self.threads)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two series to compare; the speedup is baseline over candidate."""

    label: str
    baseline: Series
    candidate: Series
    not_comparable: str | None = None
    """Why their times say nothing about each other; None where they do."""


_Key = TypeVar("_Key", bound=Hashable)
_Found = TypeVar("_Found")


def first_of_each(found: Iterable[tuple[_Key, _Found]]) -> dict[_Key, _Found]:
    """What is asked for by its series or pair; of several, the first counts."""
    known: dict[_Key, _Found] = {}
    for key, one in found:
        known.setdefault(key, one)
    return known


def switch_in_name(text: str) -> Switch | None:
    """What a runner's path or an experiment's name says about SME2, if anything."""
    lowered = text.lower()
    if any(mark in lowered for mark in _OFF_MARKS):
        return "off"
    return "on" if any(mark in lowered for mark in _ON_MARKS) else None


def make_pair(baseline: Series, candidate: Series, label: str | None = None) -> Pair:
    return Pair(label or default_label(baseline, candidate), baseline, candidate)


def default_label(baseline: Series, candidate: Series) -> str:
    """`on vs off, 1 thread`: what is looked at stands first, what it is held against second."""
    if baseline.threads == candidate.threads:
        return with_threads(f"{candidate.experiment} vs {baseline.experiment}", candidate.threads)
    return f"{candidate} vs {baseline}"


def natural_pairs(switches: Iterable[tuple[Series, Switch | None]]) -> tuple[Pair, ...]:
    """Each SME2-off series with the SME2-on one that differs from it in the switch alone."""
    known = list(switches)
    bare = {series.experiment: _bare(series.experiment) for series, _ in known}
    if len(bare) == 2:
        bare = dict.fromkeys(bare, "")  # there is nothing else that either could be held against
    on: dict[tuple[int | None, str], list[Series]] = {}
    for series, switch in known:
        if switch == "on":
            on.setdefault((series.threads, bare[series.experiment]), []).append(series)
    return tuple(
        make_pair(before, after)
        for before, switch in known
        if switch == "off"
        for after in on.get((before.threads, bare[before.experiment]), ())
    )


_MARKS = re.compile(
    "|".join(map(re.escape, sorted((*_OFF_MARKS, *_ON_MARKS), key=len, reverse=True))), re.IGNORECASE
)


def without_switch(name: str, instead: str) -> str:
    """`name` with `instead` where it says that SME2 is on or off."""
    said = _MARKS.sub(instead, name)
    return said if said != name else re.sub(r"(?i)(?<![a-z0-9])(on|off)(?![a-z0-9])", instead, name)


def _bare(name: str) -> str:
    return without_switch(name.lower(), "")
