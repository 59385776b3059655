"""What the page of a store is made of: every run in a line, and the latency of each series over the runs.

`workflow/` asks the store and fills these; nothing here knows where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from model_profiling.core.formatting import listing, plural, span
from model_profiling.report.document import Answers, Strong, Text
from model_profiling.run import Times


class Kernels(str, Enum):
    """What is known about SME2 kernels in a run."""

    RAN = "SME2 kernels ran"
    RAN_EMULATED = "SME2 kernels ran, emulated"
    SME_RAN = "SME or SME2 kernels ran"
    NONE_RAN = "no SME2 kernel ran"
    NOT_TESTED = "not tested"

    @property
    def proven(self) -> bool:
        return self in (Kernels.RAN, Kernels.RAN_EMULATED)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the page tells of it; texts are as shown."""

    id: str
    measured: str
    """When, ISO 8601 in UTC, to the second."""
    model: str
    format: str
    """Backend and dtype: `xnnpack fp16`; empty where nothing says."""
    device: str
    times: Times = Times.HARDWARE
    state: str = "finished"
    kernels: Kernels = Kernels.NOT_TESTED
    commit: str = ""
    branch: str = ""
    tags: tuple[str, ...] = ()
    report: str = ""
    """Its report, relative to the page; empty where there is none."""
    no_report: str = ""
    """Why there is none, as a clause."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run's median latency in one series, with the interval of the median where it is known."""

    run: str
    ms: float
    low_ms: float | None = None
    high_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The latency of a series went to another level and stayed there, or drifts."""

    run: str
    """The first run at the new level."""
    before_ms: float
    after_ms: float
    share: float
    """Of the time before: 0.03 is 3% slower."""
    also: tuple[str, ...] = ()
    """What else changed where the level did, such as `ExecuTorch 1.5.0 -> 1.5.1`."""
    until: str = ""
    """Of a drift its last run; empty where the change came at once."""
    drawn_from: tuple[str, float] | None = None
    """Of a drift that began before the first point that is drawn: the run it is drawn from, and its ms."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something around the model is not as it was in the run before: ExecuTorch, the kit, the program."""

    run: str
    text: str


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """One series over the runs of a model, a format and a device, the oldest first."""

    model: str
    format: str
    device: str
    experiment: str
    threads: int
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    marks: tuple[Mark, ...] = ()
    headline: bool = True
    """Whether it is the one that is shown where only one of its model, format and device is."""
    judged: bool = True
    """Whether there are enough runs to tell a change from noise."""
    left_out: int = 0
    """How many older points the page has no room for."""

    @property
    def last_change(self) -> Change | None:
        return self.changes[-1] if self.changes else None


@dataclass(frozen=True, slots=True)
class Method:
    """How changes were found: what the page says of it."""

    fewest_runs: int
    """A history of fewer is not judged."""
    by_chance: float
    """In how many of the histories that are told first a change would be found, had none of them one."""


@dataclass(frozen=True, slots=True)
class StoreContents:
    name: str
    runs: tuple[StoredRun, ...]
    histories: tuple[SeriesHistory, ...]
    method: Method
    command: str = ""
    """What tells of everything that a page has no room for, such as `sme2prof query --store S`."""


# What of a large store a page shows: a browser has to hold it, and a person has to read it.
# The answers at the top are of everything; tables and charts hold the newest runs, and of histories those
# that changed first. What is left out is said, with the command that tells it.

RUNS = 12_000
HISTORIES = 240
POINTS = 160
"""In one history."""
ROWS, COLUMNS = 80, 30
"""Of the table of models and devices."""


def fitted(contents: StoreContents) -> tuple[StoreContents, str]:
    """What a page has room for, the newest runs first, and a sentence about the rest, empty if all fits."""
    runs = sorted(contents.runs, key=lambda run: (run.measured, run.id), reverse=True)
    kept = tuple(runs[:RUNS])
    ids = {run.id for run in kept}
    order = {run.id: place for place, run in enumerate(reversed(runs))}
    inside = [history for history in contents.histories if any(point.run in ids for point in history.points)]
    chosen = sorted(inside, key=lambda history: _rank(history, order))[:HISTORIES]
    histories = tuple(
        sorted(
            (_newest(history, ids) for history in chosen),
            key=lambda found: (found.model, found.format, found.device, found.experiment, found.threads),
        )
    )
    told = [
        f"{shown:,} of {whole:,} {what}"
        for shown, whole, what in (
            (len(kept), len(runs), "runs, the newest"),
            (len(histories), len(contents.histories), "histories, those that changed and the newest"),
        )
        if shown < whole
    ]
    if longest := max((history.left_out for history in histories), default=0):
        told.append(f"the newest points of each history (up to {longest:,} older ones are left out)")
    more = f" {contents.command}" if contents.command else ""
    note = f"This page holds {listing(told)}. The answers at the top are of everything.{more}" if told else ""
    return replace(contents, runs=kept, histories=histories), note


def _rank(history: SeriesHistory, order: dict[str, int]) -> tuple[bool, bool, int]:
    """Headlines that changed, other headlines, then the rest; the latest first."""
    last = history.last_change
    at = last.run if last else history.points[-1].run
    return not history.headline, last is None, -order.get(at, 0)


def _seen(change: Change, known: set[str]) -> bool:
    """A drift is, as long as its end is."""
    return change.run in known or change.until in known


def _from(history: SeriesHistory, first: int, change: Change, runs: set[str]) -> Change:
    """A drift that began before the first point that is shown, drawn from there on and told whole."""
    places = [point.run for point in history.points]
    begin, end = places.index(change.run) - 1, places.index(change.until or change.run)
    if not change.until or begin >= first:
        return change
    way = (first - begin) / (end - begin)
    before = change.before_ms * (change.after_ms / change.before_ms) ** way
    shown = places[min(first + 1, end)]
    return replace(change, run=change.run if change.run in runs else shown, drawn_from=(shown, before))


def _newest(history: SeriesHistory, runs: set[str]) -> SeriesHistory:
    held = [point for point in history.points if point.run in runs]
    points = tuple(held[-POINTS:])
    first = history.points.index(points[0])
    known = {point.run for point in points}
    return replace(
        history,
        points=points,
        changes=tuple(
            _from(history, first, change, runs) for change in history.changes if _seen(change, known)
        ),
        marks=tuple(mark for mark in history.marks if mark.run in known),
        left_out=first,
    )


# The three answers at the top of a store's page, of everything that is in it.

_NAMED = 3
"""How many an answer names, at most."""

_NOT_PROVEN = (
    (Kernels.SME_RAN, "SME or SME2, which is not told:"),
    (Kernels.NONE_RAN, "none ran in"),
    (Kernels.NOT_TESTED, "not tested:"),
)


def answers(contents: StoreContents) -> Answers:
    return Answers(
        (
            ("What is in it?", _inventory(contents.runs)),
            ("Did anything become slower?", _slower(contents)),
            ("Do SME2 kernels run?", _kernels(contents.runs)),
        )
    )


def change_text(change: Change) -> str:
    """`3.2% slower`: of the time before."""
    way = f"{'slower' if change.share > 0 else 'faster'}{' little by little' if change.until else ''}"
    return f"{100 * abs(change.share):.1f}% {way}"


def program_of(found: StoredRun | SeriesHistory) -> str:
    return f"{found.model} {found.format}".strip()


def _inventory(runs: Sequence[StoredRun]) -> Text:
    if not runs:
        return "No run yet: `sme2prof store add RUN_DIR` puts one into it."
    dates = sorted(run.measured[:10] for run in runs)
    models = {run.model for run in runs}
    devices = {run.device for run in runs if run.times is not Times.EMULATED}
    places = [plural(len(devices), "device")] if devices else []
    places += ["an emulator"] if any(run.times is Times.EMULATED for run in runs) else []
    return (
        Strong(_count(len(runs), "run")),
        f", {span(dates[0], dates[-1])}: {plural(len(models), 'model')} on {listing(places)}.",
    )


def _slower(contents: StoreContents) -> Text:
    """Of the series that each model, format and device is told by."""
    told = [history for history in contents.histories if history.headline]
    judged = [history for history in told if history.judged]
    if not judged:
        most = max((len(history.points) for history in told), default=0)
        there = f"there {'is' if most == 1 else 'are'} {most} at most"
        return (
            f"Not known yet: it takes {plural(contents.method.fewest_runs, 'run')} of one model on one "
            f"device to tell a change from noise, and {there}."
        )
    since_best = [(each, _since_best(each.changes)) for each in judged]
    slower = [(each, change) for each, change in since_best if change is not None]
    faster = sum(change is None and _net(each.changes) < 0 for each, change in since_best)
    also = f" {faster} became faster." if faster else ""
    if not slower:
        return Strong("No"), f": of {_histories(len(judged))}, none became slower.{also}"
    history, change = max(slower, key=lambda each: each[1].share)
    dates = {run.id: run.measured[:10] for run in contents.runs}
    worst = f"{program_of(history)} on {history.device}, {change_text(change)} since {dates[change.run]}"
    first = "" if len(slower) == 1 else "most of all "
    return Strong("Yes"), f": {len(slower)} of {_histories(len(judged))}, {first}{worst}.{also}"


def _since_best(changes: Sequence[Change]) -> Change | None:
    """How much slower a series is than it was at its best, as a change at the run after that; None where what
    is left is less than the smallest of the changes since, as after one that was undone."""
    best = min(range(len(changes)), key=lambda count: _net(changes[:count]), default=0)
    since = changes[best:]
    left = _net(since)
    if not since or left * (1 + 1e-9) < min(abs(change.share) for change in since):
        return None
    return replace(since[0], share=left, until=since[0].until if len(since) == 1 else "")


def _net(changes: Sequence[Change]) -> float:
    """What several changes come to, as a share of the time before the first."""
    return math.prod(1 + change.share for change in changes) - 1


def _kernels(runs: Iterable[StoredRun]) -> Text:
    states = kernel_states(runs)
    proven = sum(state.proven for state in states.values())
    rest = [
        f"{words} {_some(found)}"
        for wanted, words in _NOT_PROVEN
        if (found := sorted(program for program, state in states.items() if state is wanted))
    ]
    if proven:
        told = "; ".join((f"proven for {proven} of {plural(len(states), 'program')}", *rest))
        return Strong("Yes"), f": {told}."
    if set(states.values()) <= {Kernels.NOT_TESTED}:
        return Strong("Not tested"), ": no run has kernel evidence."
    return Strong("Not proven"), f": {'; '.join(rest)}."


def kernel_states(runs: Iterable[StoredRun]) -> dict[str, Kernels]:
    """Of each program what the newest test said, wherever it was run: hardware and emulation prove the
    same, and a run that tested nothing takes no proof away."""
    states: dict[str, Kernels] = {}
    for run in sorted(runs, key=lambda run: run.measured):
        if run.kernels is not Kernels.NOT_TESTED or program_of(run) not in states:
            states[program_of(run)] = run.kernels
    return states


def _some(programs: Sequence[str]) -> str:
    left = len(programs) - _NAMED
    return listing([*programs[:_NAMED], f"{left} more"] if left > 0 else programs)


def _histories(count: int) -> str:
    return f"{count:,} {'history' if count == 1 else 'histories'}"


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else f'{word}s'}"
