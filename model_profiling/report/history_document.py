"""The page of a model's history: changes first, then each series with its chart and its runs."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report.charts.over_time import history_chart
from model_profiling.report.document import Block, Folded, Heading, Paragraph, make_list, make_table
from model_profiling.report.history import (
    METHOD,
    History,
    HistorySeries,
    change_sentence,
    series_sentences,
    series_title,
)

MOST_SERIES = 30
"""On a page; `--json` has all."""
MOST_RUNS = 200
"""In the table of a series, newest first."""


def history_title(history: History) -> str:
    return f"{history.model}: latency over {plural(_longest(history), 'run')}"


def history_document(history: History) -> list[Block]:
    shown = history.series[:MOST_SERIES]
    return [
        Heading(history_title(history), 1),
        *_opening(history),
        *(block for number, series in enumerate(shown, start=1) for block in _section(series, number)),
        Heading("Method"),
        Paragraph(f"Changes: {METHOD}."),
        *left_out(history),
    ]


def _longest(history: History) -> int:
    return max((len(series.points) for series in history.series), default=0)


def _opening(history: History) -> Iterator[Block]:
    told = [
        f"{series_title(series.key)}: {change_sentence(series, series.changes[-1])}"
        for series in history.series
        if series.changes
    ]
    judged = sum(not series.found.too_few for series in history.series)
    if told:
        yield Paragraph(f"The last change of each of {plural(len(told), 'series')}:")
        yield from make_list(told)
    elif judged:
        yield Paragraph("No change was found.")
    else:
        yield Paragraph("Too few runs to tell a change from noise.")
    if len(history.series) > MOST_SERIES:
        rest = len(history.series) - MOST_SERIES
        yield Paragraph(f"{rest} more series are not on this page: `sme2prof history --json` has them.")


def _section(series: HistorySeries, number: int) -> Iterator[Block]:
    yield Heading(series_title(series.key))
    yield history_chart(series, number)
    yield from make_list(series_sentences(series))
    rows = [
        (
            str(place + 1),
            f"{point.at:%Y-%m-%d %H:%M}",
            point.short_commit or MISSING,
            milliseconds(point.median_ms),
            MISSING if point.low_ms is None else milliseconds(point.low_ms),
            MISSING if point.high_ms is None else milliseconds(point.high_ms),
            point.executorch or MISSING,
            point.kit or MISSING,
            point.run_id[:12],
        )
        for place, point in list(enumerate(series.points))[: -MOST_RUNS - 1 : -1]
    ]
    headers = ("run", "measured", "commit", "median ms", "from", "to", "ExecuTorch", "kit", "run_id")
    newest = f"the newest {MOST_RUNS} of " if len(series.points) > MOST_RUNS else ""
    summary = f"Runs: {newest}{len(series.points)}"
    yield Folded(summary, (make_table(headers, rows, numbers=(0, 3, 4, 5)),))


def left_out(history: History) -> list[Block]:
    return make_list(f"{plural(each.runs, 'run')} left out: {each.reason}." for each in history.left_out)
