"""What of a large store a page shows: a browser has to hold it, and a person has to read it.

The answers at the top are of everything; tables and charts hold the newest runs, and of histories those that
changed first. What is left out is said, with the command that tells it.
"""

from __future__ import annotations

from dataclasses import replace

from model_profiling.report.store_index.records import Change, SeriesHistory, StoreContents
from model_profiling.wording import listing

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
