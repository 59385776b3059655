"""The page of a model's history: changes first, then each series with its chart and its runs."""

from __future__ import annotations

from collections.abc import Iterator

from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report import charts as draw
from model_profiling.report.document import Block, Chart, Folded, Heading, Paragraph, make_list, make_table
from model_profiling.report.history import (
    METHOD,
    History,
    HistorySeries,
    change_in_short,
    change_sentence,
    series_sentences,
    series_title,
)

MOST_SERIES = 30
"""On a page; `--json` has all."""
MOST_RUNS = 200
"""In the table of a series, newest first."""


def history_title(history: History) -> str:
    longest = max((len(series.points) for series in history.series), default=0)
    return f"{history.model}: latency over {plural(longest, 'run')}"


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


MOST_POINTS = 400
"""The most points of a series, the newest: more would overlap."""
_SLOWER = "#c0392b"


def history_chart(series: HistorySeries, number: int = 1) -> Chart:
    """`number` distinguishes the charts of a page."""
    left = max(0, len(series.points) - MOST_POINTS)
    shown = series.points[left:]
    changes = _change_rows(series, left)
    data = {
        "points": [
            {
                "run": place,
                "ms": round(point.median_ms, 6),
                "low": round(point.median_ms if point.low_ms is None else point.low_ms, 6),
                "high": round(point.median_ms if point.high_ms is None else point.high_ms, 6),
                "date": f"{point.at:%Y-%m-%d %H:%M}",
                "commit": draw.named(point.short_commit),
            }
            for place, point in enumerate(shown, start=left + 1)
        ],
        "levels": _level_rows(series, left),
        "changes": changes,
        "steps": [row for row in changes if not row["_drift"]],
        "marks": _mark_rows(series, left),
    }
    # Show every median; cut an interval that goes far beyond.
    least, most = (pick(point.median_ms for point in shown) for pick in (min, max))
    room = max(0.15 * (most - least), 0.02 * most)
    y = draw.axis(
        "ms, median with its interval", draw.span(round(max(0.0, least - room), 6), round(most + room, 6))
    )
    dates = f"runs in the order they were measured; {shown[0].at:%Y-%m-%d} to {shown[-1].at:%Y-%m-%d}"
    x = draw.axis(
        [dates, f"the newest {MOST_POINTS} of {len(series.points)}"] if left else [dates],
        draw.span(left + 0.5, len(series.points) + 0.5),
        tickMinStep=1,
        format="d",
        tickCount=8,
        grid=False,
    )
    tip = {"run": "run", "ms": "ms", "low": "from ms", "high": "to ms", "date": "date", "commit": "commit"}
    told = {"run": "first run", "told": "change", "date": "date", "commit": "commit"}
    around = {"run": "from run", "what": "changed"}
    level = {"first": "from run", "last": "to", "ms": "ms"}
    own: draw.Layer = {"x": "run", "color": draw.series_colour(0)}
    layers = [
        draw.layer("marks", "rule", x="run", tip=around, strokeDash=[2, 3], opacity=0.6, color=draw.BEFORE),
        draw.layer("steps", "rule", x="_between", color=draw.OWN_COLOUR, tip=told, strokeWidth=2),
        draw.layer(
            "levels", "rule", x="first", x2="last", y="from", y2="ms", tip=level,
            strokeWidth=2.5, opacity=0.7, color=draw.BEFORE,
        ),
        draw.layer("points", "rule", y="low", y2="high", opacity=0.45, clip=True, **own),
        draw.layer("points", "point", y="ms", tip=tip, filled=True, size=34, opacity=1, **own),
        draw.layer(
            "changes", "text", x="_between", y={"value": 0}, text="_text",
            align="left", baseline="top", dx=4, dy=2, fontWeight="bold",
        ),
    ]  # fmt: skip
    said = "; ".join(
        f"{change_in_short(change)} {'since' if change.drift else 'at'} run {change.first + 1 - change.drift}"
        for change in series.changes
    )
    medians = [point.median_ms for point in series.points]
    summary = (
        f"{plural(len(medians), 'run')} between {milliseconds(min(medians))} and "
        f"{milliseconds(max(medians))} ms; {said or 'no change was found'}."
    )
    title = draw.named(series_title(series.key))
    return Chart(
        f"history_{number}", title, summary, draw.layered(data, layers, x, y), "the store: experiments"
    )


def _level_rows(series: HistorySeries, left: int) -> list[draw.Row]:
    rows: list[draw.Row] = []
    for level in series.found.levels:
        hidden = max(0, left - level.first) / max(1, level.last - level.first)
        start = level.at_first + hidden * (level.typical - level.at_first)
        if level.last >= left:
            first, last = max(level.first, left) + 0.6, level.last + 1.4
            rows.append(
                {"first": first, "last": last, "from": round(start, 6), "ms": round(level.typical, 6)}
            )
    return rows


def _change_rows(series: HistorySeries, left: int) -> list[draw.Row]:
    return [
        {
            "run": change.first + 1,
            "told": change_in_short(change),
            "date": f"{series.points[change.first].at:%Y-%m-%d %H:%M}",
            "commit": draw.named(series.points[change.first].short_commit),
            "_between": max(change.first + (0 if change.drift else 0.5), left + 0.5),
            "_drift": change.drift,
            "_colour": _SLOWER if change.change > 0 else draw.AFTER,
            "_text": f"{100 * change.change:+.1f}%{' drift' if change.drift else ''}",
        }
        for change in series.changes
        if (change.latest if change.drift else change.first) >= left
    ]


def _mark_rows(series: HistorySeries, left: int) -> list[draw.Row]:
    """Changes around the model."""
    found: dict[int, list[str]] = {}
    for mark in series.marks:
        if mark.first >= left and mark.telling:
            found.setdefault(mark.first, []).append(mark.text)
    return [{"run": first + 0.5, "what": draw.named("; ".join(texts))} for first, texts in found.items()]
