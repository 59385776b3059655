"""Latencies over time: of a series over its runs, and of programs that took turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report.charts.drawing import (
    AFTER,
    BEFORE,
    About,
    Row,
    across,
    make_chart,
    named,
    series_colour,
    thinned,
    tooltips,
)
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.history import HistorySeries, by_name, change_in_short
from model_profiling.run import Run, names
from model_profiling.run.comparability import shared_launches, timed, way_of
from model_profiling.statistics.change_points import Level
from model_profiling.statistics.lockstep import paired_cycles

# A series over its runs: medians with their intervals, levels, changes, and what else changed.

MOST_POINTS = 400
"""Of a series, the newest: more would lie on each other."""
_SLOWER = "#c0392b"


def history_chart(series: HistorySeries, number: int = 1) -> Chart:
    """`number` tells the charts of a page apart."""
    import altair as alt

    left = max(0, len(series.points) - MOST_POINTS)
    points, levels = _point_rows(series, left), _level_rows(series, left)
    changes, marks = _change_rows(series, left), _mark_rows(series, left)
    lowest, highest = _range(points)
    x = across(
        _axis(series, left),
        alt.Scale(domain=[left + 0.5, len(series.points) + 0.5], nice=False, zero=False),
        alt.Axis(tickMinStep=1, format="d", tickCount=8, grid=False),
    )

    def y(field: str) -> alt.Y:
        scale = alt.Scale(domain=[lowest, highest], nice=False, zero=False)
        return alt.Y(f"{field}:Q", title="ms, median with its interval", scale=scale)

    def layer(rows: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name=rows))

    tip = tooltips(run="run", ms="ms", low="from ms", high="to ms", date="date:N", commit="commit:N")
    told = tooltips(run="first run", told="change:N", date="date:N", commit="commit:N")
    drawn = alt.layer(
        layer("marks")
        .mark_rule(strokeDash=[2, 3], opacity=0.6, color=BEFORE)
        .encode(x=x("run"), tooltip=tooltips(run="from run", what="changed:N")),
        layer("steps")
        .mark_rule(strokeWidth=2)
        .encode(x=x("_between"), color=alt.Color("_colour:N", scale=None), tooltip=told),
        layer("levels")
        .mark_rule(strokeWidth=2.5, opacity=0.7, color=BEFORE)
        .encode(
            x=x("first"),
            x2=alt.X2("last"),
            y=y("from"),
            y2=alt.Y2("ms"),
            tooltip=tooltips(first="from run", last="to", ms="ms"),
        ),
        layer("points")
        .mark_rule(opacity=0.45, color=series_colour(0), clip=True)
        .encode(x=x("run"), y=y("low"), y2=alt.Y2("high")),
        layer("points")
        .mark_point(filled=True, size=34, opacity=1, color=series_colour(0))
        .encode(x=x("run"), y=y("ms"), tooltip=tip),
        layer("changes")
        .mark_text(align="left", baseline="top", dx=4, dy=2, fontWeight="bold")
        .encode(x=x("_between"), y=alt.value(0), text=alt.Text("_text:N")),
        height=220,
    )
    about = About(f"history_{number}", named(by_name(series.key)), _summary(series), "the store: experiments")
    steps = [row for row in changes if not row["_drift"]]
    data = {"points": points, "levels": levels, "changes": changes, "steps": steps, "marks": marks}
    return make_chart(about, drawn, data)


def _point_rows(series: HistorySeries, left: int) -> list[Row]:
    return [
        {
            "run": place + 1,
            "ms": round(point.median_ms, 6),
            "low": round(point.median_ms if point.low_ms is None else point.low_ms, 6),
            "high": round(point.median_ms if point.high_ms is None else point.high_ms, 6),
            "date": f"{point.at:%Y-%m-%d %H:%M}",
            "commit": named(point.short_commit),
        }
        for place, point in enumerate(series.points)
        if place >= left
    ]


def _level_rows(series: HistorySeries, left: int) -> list[Row]:
    return [
        {
            "first": max(level.first, left) + 0.6,
            "last": level.last + 1.4,
            "from": round(_height(level, left), 6),
            "ms": round(level.typical, 6),
        }
        for level in series.found.levels
        if level.last >= left
    ]


def _height(level: Level, left: int) -> float:
    """Where a level is at its first run that is shown."""
    hidden = max(0, left - level.first) / max(1, level.last - level.first)
    return level.at_first + hidden * (level.typical - level.at_first)


def _change_rows(series: HistorySeries, left: int) -> list[Row]:
    return [
        {
            "run": change.first + 1,
            "told": change_in_short(change),
            "date": f"{series.points[change.first].at:%Y-%m-%d %H:%M}",
            "commit": named(series.points[change.first].short_commit),
            "_between": max(change.first + (0 if change.drift else 0.5), left + 0.5),
            "_drift": change.drift,
            "_colour": _SLOWER if change.change > 0 else AFTER,
            "_text": f"{100 * change.change:+.1f}%{' drift' if change.drift else ''}",
        }
        for change in series.changes
        if (change.latest if change.drift else change.first) >= left
    ]


def _mark_rows(series: HistorySeries, left: int) -> list[Row]:
    """What changed around the model."""
    found: dict[int, list[str]] = {}
    for mark in series.marks:
        if mark.first >= left and mark.telling:
            found.setdefault(mark.first, []).append(mark.text)
    return [{"run": first + 0.5, "what": named("; ".join(texts))} for first, texts in found.items()]


def _range(points: Sequence[Row]) -> tuple[float, float]:
    """Wide enough for every median; an interval that goes far beyond is cut."""
    medians = [float(str(point["ms"])) for point in points]
    least, most = min(medians), max(medians)
    room = max(0.15 * (most - least), 0.02 * most)
    return round(max(0.0, least - room), 6), round(most + room, 6)


def _axis(series: HistorySeries, left: int) -> list[str]:
    first, last = series.points[left], series.points[-1]
    shown = f"run, in the order of measuring; {first.at:%Y-%m-%d} to {last.at:%Y-%m-%d}"
    return [shown, f"the newest {MOST_POINTS} of {len(series.points)}"] if left else [shown]


def _summary(series: HistorySeries) -> str:
    medians = [point.median_ms for point in series.points]
    said = "; ".join(
        f"{change_in_short(change)} {'since' if change.drift else 'at'} run {change.first + 1 - change.drift}"
        for change in series.changes
    )
    return (
        f"{plural(len(medians), 'run')} between {milliseconds(min(medians))} and "
        f"{milliseconds(max(medians))} ms; {said or 'no change was found'}."
    )


# Turns of two programs beside the ratio of the two, so that the machine's noise is seen to cancel.

_MOST = 240
_LINES = {"before": BEFORE, "after": AFTER, "ratio": "#b5532f"}
_LEAST_RANGE = 2.0


def turns_chart(run: Run, pair: PairReport, name: str) -> Chart | None:
    """How far each turn of either side, and their ratio, lies from its own median; None unless they took
    turns and got their answer from that."""
    import altair as alt

    found = pair.speedup
    if pair.with_tracer or found.ratio is None or found.unit != "launch":
        return None
    try:
        journal = run.journal
    except FormatError:  # which is among the report's warnings
        return None
    if journal is None:
        return None
    sides = timed(journal, pair.pair.baseline), timed(journal, pair.pair.candidate)
    if way_of(*sides, same_run=True) != "lockstep":
        return None
    cycles = paired_cycles(*shared_launches(sides[0].launches, sides[1].launches))
    if not cycles or any((launch <= 0).any() for launch in cycles):
        return None
    whole = np.concatenate(cycles)
    launches = np.repeat(np.arange(1, len(cycles) + 1), [len(launch) for launch in cycles])
    values = {"before": whole[:, 0], "after": whole[:, 1], "ratio": whole[:, 0] / whole[:, 1]}
    away = {what: 100 * (each / np.median(each) - 1) for what, each in values.items()}
    spread = {what: np.percentile(each, [5, 95]) for what, each in away.items()}
    edge = max(_LEAST_RANGE, *(2 * float(np.abs(edges).max()) for edges in spread.values()))
    rows: list[Row] = [
        {
            "turn": at + 1,
            "launch": int(launches[at]),
            "what": what,
            "_at": round(float(np.clip(each[at], -edge, edge)), 3),
            "percent": round(float(each[at]), 3),
            "value": round(float(values[what][at]), 5),
        }
        for what, each in away.items()
        for at in thinned(range(len(whole)), _MOST)
    ]
    middle = float(np.median(values["ratio"]))
    medians = [float(np.median(launch[:, 0] / launch[:, 1])) for launch in cycles]
    ends = np.cumsum([len(launch) for launch in cycles])
    counted: list[Row] = [
        {
            "launch": number,
            "from": int(end) - len(launch) + 1,
            "to": int(end),
            "ratio": round(ratio, 5),
            "percent": round(100 * (ratio / middle - 1), 3),
            "_at": round(float(np.clip(100 * (ratio / middle - 1), -edge, edge)), 3),
        }
        for number, (launch, end, ratio) in enumerate(zip(cycles, ends, medians, strict=True), start=1)
    ]
    lines = list(_LINES)
    legend = alt.Legend(orient="top", columns=3, title=None, symbolStrokeWidth=3)
    some = f"; {_MOST} of {len(whole):,} shown" if len(whole) > _MOST else ""
    scale = alt.Scale(domain=[1, max(2, len(whole))], nice=False, zero=False)
    bars = "bar: a launch's median ratio, which counts"
    x = across(
        [f"turn, {plural(len(cycles), 'launch')} one after another{some}", bars],
        scale,
        alt.Axis(grid=False, tickCount=6),
    )
    vertical = alt.Scale(domain=[-edge, edge], nice=False)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="% from its own median", scale=vertical)

    base = alt.Chart(alt.NamedData(name="rows")).encode(
        x=x("turn"),
        y=y("_at"),
        color=alt.Color("what:N", scale=alt.Scale(domain=lines, range=list(_LINES.values())), legend=legend),
        strokeDash=alt.StrokeDash(
            "what:N", scale=alt.Scale(domain=lines, range=[[1, 0], [4, 2], [1, 0]]), legend=legend
        ),
        detail=alt.Detail("launch:N"),
        tooltip=tooltips(
            what="what:N", launch="launch", turn="turn", value="ms, or ratio", percent="% from its median"
        ),
    )
    drawn = alt.layer(
        base.transform_filter("datum.what !== 'ratio'").mark_line(strokeWidth=1.1, clip=True),
        base.transform_filter("datum.what === 'ratio'").mark_line(strokeWidth=1.8, clip=True),
        alt.Chart(alt.NamedData(name="launches"))
        .mark_rule(strokeWidth=4, clip=True)
        .encode(
            x=x("from"),
            x2=alt.X2("to"),
            y=y("_at"),
            tooltip=tooltips(launch="launch", ratio="median ratio", percent="% from the median of all"),
        ),
        height=240,
    )
    before, after, ratio = (float(edges[1] - edges[0]) for edges in spread.values())
    summary = (
        f"Over {plural(len(whole), 'turn')} in {plural(len(cycles), 'launch')} nine in ten times before lie "
        f"within {before:.1f}% of each other, times after within {after:.1f}%, their ratios within "
        f"{ratio:.1f}%. Of each launch the median of its ratios counts: {min(medians):.3f}x to "
        f"{max(medians):.3f}x, together {found.ratio:.3f}x."
    )
    title = f"Turn by turn, {named(pair.label)}: either side, and the ratio of the two"
    data = {"rows": rows, "launches": counted}
    return make_chart(About(name, title, summary, f"{names.JOURNAL}: turns_ns"), drawn, data)
