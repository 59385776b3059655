"""Charts of latencies over time: of a series over its runs, and of programs that took turns."""

from __future__ import annotations

import numpy as np

from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report.charts.drawing import (
    AFTER,
    BEFORE,
    OWN_COLOUR,
    Layer,
    Row,
    axis,
    layer,
    layered,
    named,
    palette,
    series_colour,
    span,
    thinned,
)
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.history import HistorySeries, change_in_short, series_title
from model_profiling.run import Run, names
from model_profiling.run.comparability import shared_launches, timed, way_of
from model_profiling.statistics.lockstep import paired_cycles

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
                "commit": named(point.short_commit),
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
    y = axis("ms, median with its interval", span(round(max(0.0, least - room), 6), round(most + room, 6)))
    dates = f"run, in the order of measuring; {shown[0].at:%Y-%m-%d} to {shown[-1].at:%Y-%m-%d}"
    x = axis(
        [dates, f"the newest {MOST_POINTS} of {len(series.points)}"] if left else [dates],
        span(left + 0.5, len(series.points) + 0.5),
        tickMinStep=1,
        format="d",
        tickCount=8,
        grid=False,
    )
    tip = {"run": "run", "ms": "ms", "low": "from ms", "high": "to ms", "date": "date", "commit": "commit"}
    told = {"run": "first run", "told": "change", "date": "date", "commit": "commit"}
    around = {"run": "from run", "what": "changed"}
    level = {"first": "from run", "last": "to", "ms": "ms"}
    own: Layer = {"x": "run", "color": series_colour(0)}
    layers = [
        layer("marks", "rule", x="run", tip=around, strokeDash=[2, 3], opacity=0.6, color=BEFORE),
        layer("steps", "rule", x="_between", color=OWN_COLOUR, tip=told, strokeWidth=2),
        layer(
            "levels", "rule", x="first", x2="last", y="from", y2="ms", tip=level,
            strokeWidth=2.5, opacity=0.7, color=BEFORE,
        ),
        layer("points", "rule", y="low", y2="high", opacity=0.45, clip=True, **own),
        layer("points", "point", y="ms", tip=tip, filled=True, size=34, opacity=1, **own),
        layer(
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
    title = named(series_title(series.key))
    return Chart(f"history_{number}", title, summary, layered(data, layers, x, y), "the store: experiments")


def _level_rows(series: HistorySeries, left: int) -> list[Row]:
    rows: list[Row] = []
    for level in series.found.levels:
        hidden = max(0, left - level.first) / max(1, level.last - level.first)
        start = level.at_first + hidden * (level.typical - level.at_first)
        if level.last >= left:
            first, last = max(level.first, left) + 0.6, level.last + 1.4
            rows.append(
                {"first": first, "last": last, "from": round(start, 6), "ms": round(level.typical, 6)}
            )
    return rows


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
    """Changes around the model."""
    found: dict[int, list[str]] = {}
    for mark in series.marks:
        if mark.first >= left and mark.telling:
            found.setdefault(mark.first, []).append(mark.text)
    return [{"run": first + 0.5, "what": named("; ".join(texts))} for first, texts in found.items()]


# Turns of two programs and their ratio, which shows how the machine's noise cancels.

_MOST_TURNS = 240
_LINES = {"before": BEFORE, "after": AFTER, "ratio": "#b5532f"}
_LEAST_RANGE = 2.0


def turns_chart(run: Run, pair: PairReport, name: str) -> Chart | None:
    """How far each turn of either side, and their ratio, is from its own median; None unless the answer comes
    from turns."""
    found = pair.speedup
    if pair.with_tracer or found.ratio is None or found.unit != "launch":
        return None
    try:
        journal = run.journal
    except FormatError:  # it is among the report's warnings
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
    ends = {what: np.percentile(each, [5, 95]) for what, each in away.items()}
    edge = max(_LEAST_RANGE, *(2 * float(np.abs(each).max()) for each in ends.values()))

    def from_median(percent: float) -> Row:
        return {"percent": round(percent, 3), "_at": round(float(np.clip(percent, -edge, edge)), 3)}

    rows: list[Row] = [
        {
            "turn": at + 1,
            "launch": int(launches[at]),
            "what": what,
            "value": round(float(values[what][at]), 5),
            **from_median(float(each[at])),
        }
        for what, each in away.items()
        for at in thinned(range(len(whole)), _MOST_TURNS)
    ]
    middle = float(np.median(values["ratio"]))
    medians = [float(np.median(launch[:, 0] / launch[:, 1])) for launch in cycles]
    last = np.cumsum([len(launch) for launch in cycles])
    counted: list[Row] = [
        {
            "launch": number,
            "from": int(end) - len(launch) + 1,
            "to": int(end),
            "ratio": round(ratio, 5),
            **from_median(100 * (ratio / middle - 1)),
        }
        for number, (launch, end, ratio) in enumerate(zip(cycles, last, medians, strict=True), start=1)
    ]
    colour = palette("what", _LINES, orient="top", columns=3, symbolStrokeWidth=3)
    dashes = {**colour, "scale": {"domain": list(_LINES), "range": [[1, 0], [4, 2], [1, 0]]}}
    tip = {
        "what": "what", "launch": "launch", "turn": "turn", "value": "ms, or ratio",
        "percent": "% from its median",
    }  # fmt: skip
    line: Layer = {
        "x": "turn", "y": "_at", "color": colour, "strokeDash": dashes, "tip": tip, "clip": True,
        "detail": {"field": "launch", "type": "nominal"},
    }  # fmt: skip
    counts = {"launch": "launch", "ratio": "median ratio", "percent": "% from the median of all"}
    layers = [
        layer("rows", "line", where="datum.what !== 'ratio'", strokeWidth=1.1, **line),
        layer("rows", "line", where="datum.what === 'ratio'", strokeWidth=1.8, **line),
        layer("launches", "rule", x="from", x2="to", y="_at", tip=counts, strokeWidth=4, clip=True),
    ]
    some = f"; {_MOST_TURNS} of {len(whole):,} shown" if len(whole) > _MOST_TURNS else ""
    x = axis(
        [
            f"turn, {plural(len(cycles), 'launch')} one after another{some}",
            "bar: a launch's median ratio, which counts",
        ],
        span(1, max(2, len(whole))),
        grid=False,
        tickCount=6,
    )
    y = axis("% from its own median", span(-edge, edge))
    before, after, ratio = (float(each[1] - each[0]) for each in ends.values())
    summary = (
        f"Over {plural(len(whole), 'turn')} in {plural(len(cycles), 'launch')} nine in ten times before lie "
        f"within {before:.1f}% of each other, times after within {after:.1f}%, their ratios within "
        f"{ratio:.1f}%. Of each launch the median of its ratios counts: {min(medians):.3f}x to "
        f"{max(medians):.3f}x, together {found.ratio:.3f}x."
    )
    title = f"Turn by turn, {named(pair.label)}: either side, and the ratio of the two"
    spec = layered({"rows": rows, "launches": counted}, layers, x, y, 240)
    return Chart(name, title, summary, spec, f"{names.JOURNAL}: turns_ns")
