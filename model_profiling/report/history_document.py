"""The page of a model's history: a table of its series, then a chart of each."""

from __future__ import annotations

from model_profiling.core.formatting import MISSING, milliseconds, plural
from model_profiling.report import charts as draw
from model_profiling.report import document as doc
from model_profiling.report.history import (
    METHOD,
    History,
    HistorySeries,
    change_text,
    left_out_sentences,
    series_sentences,
    series_title,
)

MOST_RUNS = 400
"""In a chart, the newest."""
_SLOWER = "#c0392b"


def history_title(history: History) -> str:
    longest = max((len(series.points) for series in history.series), default=0)
    return f"{history.model}: latency over {plural(longest, 'run')}"


def history_document(history: History) -> list[doc.Block]:
    headers = ("series", "runs", "typical ms", "last change", "since")
    table = doc.make_table(headers, map(_summary, history.series), numbers=(1, 2))
    blocks: list[doc.Block] = [doc.Heading(history_title(history), 1), table]
    for number, series in enumerate(history.series, start=1):
        chart = history_chart(series, number)
        blocks += [doc.Heading(series_title(series.key)), chart, *doc.make_list(series_sentences(series))]
    about = [f"Changes: {METHOD}.", *left_out_sentences(history)]
    return [*blocks, doc.Heading("Method"), *doc.make_list(about)]


def _summary(series: HistorySeries) -> tuple[str, ...]:
    changes = series.change_points
    last, since = "too few runs" if changes.too_few else "none found", MISSING
    if series.changes:
        last, since = change_text(series.changes[-1]), series.points[series.changes[-1].first].date
    typical = milliseconds(changes.levels[-1].typical)
    return series_title(series.key), str(len(series.points)), typical, last, since


def history_chart(series: HistorySeries, number: int = 1) -> doc.Chart:
    """`number` distinguishes the charts of a page, in which runs are numbered from 1."""
    runs = len(series.points)
    left = max(0, runs - MOST_RUNS)
    shown = series.points[left:]
    data: dict[str, list[draw.Row]] = {
        "points": [
            {
                "run": place,
                "ms": round(point.median_ms, 6),
                "low": round(point.low_ms or point.median_ms, 6),
                "high": round(point.high_ms or point.median_ms, 6),
                "date": point.date,
                "commit": draw.named(point.short_commit),
                "run_id": point.run_id[:12],
            }
            for place, point in enumerate(shown, start=left + 1)
        ],
        "levels": [
            {"first": level.first + 0.6, "last": level.last + 1.4, "ms": level.typical}
            for level in series.change_points.levels
        ],
        "marks": [
            {"run": mark.first + 0.5, "what": draw.named(mark.text)}
            for mark in series.marks
            if mark.first >= left and mark.what != "program"  # a new one is normal
        ],
        "changes": [
            {
                "run": change.first + 0.5,
                "change": change_text(change),
                "_colour": _SLOWER if change.change > 0 else draw.AFTER,
                "_text": f"{100 * change.change:+.1f}%",
            }
            for change in series.changes
            if change.first >= left
        ],
    }
    # Show every median; cut an interval that goes far beyond.
    least, most = (pick(point.median_ms for point in shown) for pick in (min, max))
    room = max(0.15 * (most - least), 0.02 * most)
    y = draw.axis("ms, median with its interval", draw.span(max(0.0, least - room), most + room))
    order = f"runs in the order they were measured{f', the newest {MOST_RUNS}' if left else ''}"
    x = draw.axis(
        order, draw.span(left + 0.5, runs + 0.5), tickMinStep=1, format="d", tickCount=8, grid=False
    )
    tip = {"run": "run", "ms": "ms", "low": "from ms", "high": "to ms", "date": "date", "commit": "commit"}
    own: draw.Layer = {"x": "run", "color": draw.series_colour(0), "clip": True}
    layers = [
        draw.layer("marks", "rule", x="run", tip={"what": "changed"}, strokeDash=[2, 3], color=draw.BEFORE),
        draw.layer(
            "changes", "rule", x="run", tip={"change": "change"}, color=draw.OWN_COLOUR, strokeWidth=2,
        ),
        draw.layer(
            "levels", "rule", x="first", x2="last", y="ms", clip=True,
            strokeWidth=2.5, opacity=0.7, color=draw.BEFORE,
        ),
        draw.layer("points", "rule", y="low", y2="high", opacity=0.45, **own),
        draw.layer("points", "point", y="ms", tip=tip, filled=True, size=34, opacity=1, **own),
        draw.layer(
            "changes", "text", x="run", y={"value": 0}, text="_text",
            align="left", baseline="top", dx=4, dy=2, fontWeight="bold",
        ),
    ]  # fmt: skip
    summary = f"{plural(runs, 'run')} between {milliseconds(least)} and {milliseconds(most)} ms."
    spec = draw.layered(data, layers, x, y)
    return doc.Chart(f"history_{number}", "Latency of each run", summary, spec, "the store")
