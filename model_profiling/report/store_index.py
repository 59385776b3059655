"""The page of a store: three answers, changes, models by devices, latencies over the runs, and all runs.

`workflow/history.py` queries the store and fills these records; this module does not know their source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from urllib.parse import quote

from model_profiling.core.formatting import listing, milliseconds, plural, span
from model_profiling.report import document as doc
from model_profiling.report.explore_operators import Texts
from model_profiling.report.history import HistoryPoint, HistorySeries, SeriesKey, change_text
from model_profiling.report.html import render_html
from model_profiling.run import Times
from model_profiling.run.times import NOT_ARM
from model_profiling.statistics.change_points import FEWEST_RUNS, ChangePoint


class Kernels(str, Enum):
    RAN = "SME2 kernels ran"
    RAN_EMULATED = "SME2 kernels ran, emulated"
    SME_RAN = "SME or SME2 kernels ran"
    NONE_RAN = "no SME2 kernel ran"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with its texts as shown on the page."""

    id: str
    at: datetime
    """When it was measured, in UTC."""
    model: str
    format: str
    """Backend and dtype, such as `XNNPACK fp16`; empty if unknown."""
    device: str
    times: Times = Times.HARDWARE
    state: str = "finished"
    kernels: Kernels = Kernels.NOT_TESTED
    commit: str = ""
    branch: str = ""
    tags: tuple[str, ...] = ()
    report: str = ""
    """Its report, relative to the page; empty if there is none."""
    no_report: str = ""
    """Why there is none, as a clause."""

    @property
    def program(self) -> str:
        return f"{self.model} {self.format}".strip()


@dataclass(frozen=True, slots=True)
class StoreContents:
    name: str
    runs: tuple[StoredRun, ...]
    histories: tuple[HistorySeries, ...]
    """Their keys name devices as the runs do."""
    headlines: frozenset[SeriesKey] = frozenset()
    """The series shown for a model, format and device where there is room for only one."""
    command: str = ""
    """The command that shows what the page leaves out, such as `sme2prof query --store S`."""

    @property
    def told(self) -> list[HistorySeries]:
        return [series for series in self.histories if series.key in self.headlines]


def render_store(contents: StoreContents) -> str:
    return render_html(store_document(contents), f"Runs in {contents.name}")


def store_document(contents: StoreContents) -> list[doc.Block]:
    runs, histories, note = fit_page(contents)
    blocks: list[doc.Block] = [doc.Heading(f"Runs in {contents.name}", 1), answers(contents)]
    if any(series.is_arm is False for series in contents.histories):
        blocks.append(doc.Paragraph(NOT_ARM))
    if note:
        blocks.append(doc.Paragraph(note))
    blocks += _changes(contents, histories)
    if runs:
        instead = doc.Paragraph(
            "A script of this page draws the charts; the table above has the newest latencies."
        )
        latency = _latencies(contents)
        blocks += [
            *_matrix(contents, runs, histories),
            doc.Heading("Latency over the runs"),
            doc.Explorer("histories", "", page_data(contents, runs, histories), (instead,)),
            doc.Heading("Runs"),
            doc.make_table(_RUN, [_run(run, latency.get(run.id)) for run in runs[:_NEWEST]], numbers=(3,)),
        ]
    return blocks


# The part of a large store that fits on a page and that a person can read.
# The answers at the top cover everything; tables and charts hold the newest runs, and histories that changed
# come first. The page says what is left out and which command shows it.

RUNS = 12_000
HISTORIES = 240
POINTS = 160
"""In one history."""
_ROWS, _COLUMNS = 80, 30
"""Of the table of models and devices."""


def fit_page(contents: StoreContents) -> tuple[list[StoredRun], list[HistorySeries], str]:
    """Return the runs that fit on a page, newest first; its histories by name; and a sentence about the rest,
    empty if everything fits."""
    every = sorted(contents.runs, key=lambda run: (run.at, run.id), reverse=True)
    runs = every[:RUNS]
    known = {run.id for run in runs}
    inside = [series for series in contents.histories if series.points[-1].run_id in known]
    inside.sort(key=lambda series: _rank(series, contents.headlines))
    histories = sorted(
        inside[:HISTORIES],
        key=lambda series: (*_whose(series.key), series.key.experiment, series.key.threads or 0),
    )
    told = [
        f"{shown:,} of {whole:,} {what}"
        for shown, whole, what in (
            (len(runs), len(every), "runs, the newest"),
            (len(histories), len(contents.histories), "histories, those that changed and the newest"),
        )
        if shown < whole
    ]
    if longest := max((_first_shown(series, known) for series in histories), default=0):
        told.append(f"the newest points of each history (up to {longest:,} older ones are left out)")
    more = f" {contents.command}" if contents.command else ""
    note = f"This page shows {listing(told)}. The answers at the top cover everything.{more}" if told else ""
    return runs, histories, note


def _rank(series: HistorySeries, headlines: frozenset[SeriesKey]) -> tuple[bool, bool, float]:
    """Sort headlines that changed first, then other headlines, then the rest; the latest first."""
    latest = series.points[series.changes[-1].first if series.changes else -1]
    return series.key not in headlines, not series.changes, -latest.at.timestamp()


def _whose(key: SeriesKey) -> tuple[str, str, str]:
    return key.model, key.format, key.device_name


def _first_shown(series: HistorySeries, known: Iterable[str]) -> int:
    """Return how many of the oldest points are not drawn."""
    first = next(place for place, point in enumerate(series.points) if point.run_id in known)
    return max(first, len(series.points) - POINTS)


# The three answers at the top, about the whole store.

_NAMED = 3
"""How many programs an answer names at most."""
_NOT_PROVEN = (
    (Kernels.SME_RAN, "SME or SME2 ran (unknown which):"),
    (Kernels.NONE_RAN, "none ran in"),
    (Kernels.NOT_TESTED, "not tested:"),
)


def answers(contents: StoreContents) -> doc.Answers:
    return doc.Answers(
        (
            ("What is in it?", _inventory(contents.runs)),
            ("Did anything become slower?", _slower(contents)),
            ("Do SME2 kernels run?", _kernels(contents.runs)),
        )
    )


def _inventory(runs: Sequence[StoredRun]) -> doc.Text:
    if not runs:
        return "No runs yet: add one with `sme2prof store add RUN_DIR`."
    dates = sorted(_day(run) for run in runs)
    devices = {run.device for run in runs if run.times is not Times.EMULATED}
    places = [plural(len(devices), "device")] if devices else []
    places += ["an emulator"] if any(run.times is Times.EMULATED for run in runs) else []
    count = f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}"
    models = plural(len({run.model for run in runs}), "model")
    return doc.Strong(count), f", {span(dates[0], dates[-1])}: {models} on {listing(places)}."


def _slower(contents: StoreContents) -> doc.Text:
    judged = [series for series in contents.told if not series.found.too_few]
    if not judged:
        most = max((len(series.points) for series in contents.told), default=0)
        return (
            f"Not known yet: it takes {plural(FEWEST_RUNS, 'run')} of one model on one "
            f"device to tell a change from noise; the longest history has {most}."
        )
    since_best = [(series, _since_best(series.changes)) for series in judged]
    slower = [(series, change) for series, change in since_best if change is not None]
    faster = sum(change is None and _net(series.changes) < 0 for series, change in since_best)
    also = f" {faster} became faster." if faster else ""
    count = f"{len(judged):,} {'history' if len(judged) == 1 else 'histories'}"
    if not slower:
        return doc.Strong("No"), f": none of {count} became slower.{also}"
    series, change = max(slower, key=lambda each: each[1].change)
    key, since = series.key, _day(series.points[change.first])
    worst = f"{key.program} on {key.device_name}, {change_text(change)} since {since}"
    first = "" if len(slower) == 1 else "most of all "
    return doc.Strong("Yes"), f": {len(slower)} of {count}, {first}{worst}.{also}"


def _since_best(changes: Sequence[ChangePoint]) -> ChangePoint | None:
    """Return how much slower a series is than at its best, as a change at the run after that; None if the net
    slowdown is less than the smallest change since, as when a change was undone."""
    best = min(range(len(changes)), key=lambda count: _net(changes[:count]), default=0)
    since = changes[best:]
    left = _net(since)
    if not since or left * (1 + 1e-9) < min(abs(change.change) for change in since):
        return None
    return replace(since[0], change=left, drift=since[0].drift and len(since) == 1)


def _net(changes: Sequence[ChangePoint]) -> float:
    """Return the combined effect of several changes, as a share of the time before the first."""
    return math.prod(1 + change.change for change in changes) - 1


def _kernels(runs: Iterable[StoredRun]) -> doc.Text:
    states = _kernel_states(runs)
    proven = sum(state in (Kernels.RAN, Kernels.RAN_EMULATED) for state in states.values())
    rest = [
        f"{words} {_some(found)}"
        for wanted, words in _NOT_PROVEN
        if (found := sorted(program for program, state in states.items() if state is wanted))
    ]
    if proven:
        told = "; ".join((f"proven for {proven} of {plural(len(states), 'program')}", *rest))
        return doc.Strong("Yes"), f": {told}."
    if set(states.values()) <= {Kernels.NOT_TESTED}:
        return doc.Strong("Not tested"), ": no run has kernel evidence."
    return doc.Strong("Not proven"), f": {'; '.join(rest)}."


def _kernel_states(runs: Iterable[StoredRun]) -> dict[str, Kernels]:
    """Return the newest test result of each program on any device: hardware and emulation prove the same, and
    a run without a test takes no proof away."""
    states: dict[str, Kernels] = {}
    for run in sorted(runs, key=lambda run: run.at):
        if run.kernels is not Kernels.NOT_TESTED or run.program not in states:
            states[run.program] = run.kernels
    return states


def _some(programs: Sequence[str]) -> str:
    left = len(programs) - _NAMED
    return listing([*programs[:_NAMED], f"{left} more"] if left > 0 else programs)


# Tables: the last changes, the newest latencies, the newest runs.

_MOST_CHANGES = 8
_CHANGE = ("change", "model and device", "before", "after", "since", "report")
_RUN = ("measured", "model", "device", "latency", "kernels", "commit", "report")
_NEWEST = 20
"""How many runs a page without a script lists."""
_SME2 = {
    Kernels.RAN: "ran",
    Kernels.RAN_EMULATED: "ran, emulated",
    Kernels.SME_RAN: "SME or SME2 ran",
    Kernels.NONE_RAN: "none ran",
    Kernels.NOT_TESTED: "not tested",
}


def _changes(contents: StoreContents, histories: Sequence[HistorySeries]) -> Iterator[doc.Block]:
    runs = {run.id: run for run in contents.runs}
    found = [
        (place, series, series.changes[-1])
        for place, series in enumerate(histories)
        if series.key in contents.headlines and series.changes
    ]
    if not found:
        return
    found.sort(key=lambda each: each[1].points[each[2].first].at, reverse=True)
    rows: list[tuple[doc.Text, ...]] = []
    for place, series, change in found[:_MOST_CHANGES]:
        point = series.points[change.first]
        also = ", ".join(mark.text for mark in series.marks_at(change))
        since = " ".join(word for word in (_day(point), point.short_commit) if word)
        rows.append(
            (
                change_text(change),
                (doc.Link(series.key.program, "", f"history-{place}"), f", {series.key.device_name}"),
                f"{milliseconds(change.before)} ms",
                f"{milliseconds(change.after)} ms",
                f"{since}; also changed: {also}" if also else since,
                _report(runs[point.run_id]),
            )
        )
    left = len(found) - _MOST_CHANGES
    more = f" {left} older changes are marked only in the charts." if left > 0 else ""
    by_chance = sum(series.found.false_alarms for series in contents.told)
    yield doc.Heading("What changed")
    yield doc.make_table(_CHANGE, rows, numbers=(2, 3))
    yield doc.Paragraph(
        "A change is a latency that moved to another level, at once or gradually. Chance alone would show "
        f"one in at most {by_chance:.1f} of {len(contents.told):,} histories, if noise is independent from "
        f"run to run.{more}"
    )


def _matrix(
    contents: StoreContents, runs: Sequence[StoredRun], histories: Sequence[HistorySeries]
) -> Iterator[doc.Block]:
    newest = {(run.model, run.format, run.device): run for run in reversed(runs)}
    told = {
        _whose(series.key): (place, series)
        for place, series in enumerate(histories)
        if series.key in contents.headlines
    }
    programs = sorted({(model, exported) for model, exported, _ in newest})
    devices = sorted({device for _, _, device in newest})
    states = _kernel_states(runs)
    rows: list[tuple[doc.Text, ...]] = []
    for program in programs[:_ROWS]:
        name = " ".join(program).strip()
        cells = [
            _cell(newest.get((*program, device)), told.get((*program, device)))
            for device in devices[:_COLUMNS]
        ]
        rows.append((name, *cells, _SME2[states[name]]))
    left = [
        f"{len(every) - most} more {what}"
        for every, most, what in ((programs, _ROWS, "models"), (devices, _COLUMNS, "devices"))
        if len(every) > most
    ]
    note = f" The filters find {' and '.join(left)}." if left else ""
    yield doc.Heading("Models and devices")
    yield doc.make_table(
        ("model", *devices[:_COLUMNS], "SME2 kernels"), rows, range(1, len(devices[:_COLUMNS]) + 1)
    )
    yield doc.Paragraph(f"The newest median of each, with its last change.{note}")


def _cell(run: StoredRun | None, told: tuple[int, HistorySeries] | None) -> doc.Text:
    if told is not None:
        place, series = told
        latency = doc.Link(f"{milliseconds(series.points[-1].median_ms)} ms", "", f"history-{place}")
        return (latency, f", {change_text(series.changes[-1])}") if series.changes else latency
    if run is None:
        return ""
    return run.state if run.times.are_latencies and run.state != "finished" else "no latency"


def _run(run: StoredRun, latency: float | None) -> tuple[doc.Text, ...]:
    shown = "" if latency is None else f"{milliseconds(latency)} ms"
    return _minute(run), run.program, run.device, shown, run.kernels.value, run.commit, _report(run)


def _report(run: StoredRun) -> doc.Text:
    return doc.Link("report", run.report) if run.report else run.no_report or "no report"


def _latencies(contents: StoreContents) -> dict[str, float]:
    return {point.run_id: point.median_ms for series in contents.told for point in series.points}


def _day(found: StoredRun | HistoryPoint) -> str:
    return f"{found.at:%Y-%m-%d}"


def _minute(run: StoredRun) -> str:
    return f"{run.at:%Y-%m-%d %H:%M}"


# The data that the page's script draws, in columns, each text once; `store.js` uses the same names.


def page_data(
    contents: StoreContents, runs: Sequence[StoredRun], histories: Sequence[HistorySeries]
) -> dict[str, object]:
    """Histories refer to runs by index."""
    texts = Texts()
    places = {run.id: place for place, run in enumerate(runs)}
    latency = _latencies(contents)
    return {
        "runs": [_run_values(run, latency.get(run.id), texts) for run in runs],
        "histories": [_history(series, places, series.key in contents.headlines) for series in histories],
        "texts": texts.all,
    }


def _run_values(run: StoredRun, latency: float | None, texts: Texts) -> list[object]:
    state = run.state if run.times.are_latencies else f"{run.state}, {run.times.value}: no latencies"
    words = (run.model, run.format, run.device, run.kernels.value, state, run.commit, run.branch)
    named = texts.numbers((*words, ", ".join(run.tags), run.no_report))
    return [run.id, _minute(run), _short(latency), quote(run.report), *named]


def _history(series: HistorySeries, places: Mapping[str, int], headline: bool) -> dict[str, object]:
    """Count points from the first one drawn: an earlier change has a negative index."""
    key, left = series.key, _first_shown(series, places)
    points = series.points[left:]
    return {
        "model": key.model,
        "format": key.format,
        "device": key.device_name,
        "experiment": key.experiment,
        "threads": key.threads,
        "headline": headline,
        "judged": not series.found.too_few,
        "left": left,
        "runs": [places[point.run_id] for point in points],
        "ms": [_short(point.median_ms) for point in points],
        "low": [_short(point.low_ms) for point in points],
        "high": [_short(point.high_ms) for point in points],
        "changes": [
            [
                change.first - left,
                _short(change.before),
                _short(change.after),
                _short(change.change),
                change.latest - left if change.drift else None,
                _day(series.points[change.first]),
            ]
            for change in series.changes
        ],
        "marks": [[mark.first - left, mark.text] for mark in series.marks if mark.first >= left],
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
