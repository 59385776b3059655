"""How latencies spread, and how they moved while they were measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model_profiling.report.charts.drawing import (
    About,
    Row,
    across,
    colours,
    down,
    make_chart,
    row_labels,
    series_colour,
    series_legend,
    thinned,
    tooltips,
)
from model_profiling.report.charts.samples import (
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    MOST_SERIES,
    Sampled,
    files_of,
    usual_end,
)
from model_profiling.report.document import Chart
from model_profiling.wording import milliseconds, plural

_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [12, 4])
_LANE = 96
_LEAST_RANGE = 2.0
"""Percent up and down: below it a lane would blow up the clock's steps."""


def distribution_chart(found: Sequence[Sampled]) -> Chart | None:
    """Which share of inferences takes at most so long: two groups show as a step, stragglers as a tail."""
    import altair as alt

    shown = [each for each in found if each.count >= FEWEST_SAMPLES][:MOST_SERIES]
    if not shown:
        return None
    shares = range(101)
    rows: list[Row] = [
        {"series": name, "share": share, "ms": round(float(value), 5)}
        for each, name in ((each, each.label) for each in shown)
        for share, value in zip(
            shares, np.percentile(np.concatenate([np.asarray(ms) for ms in each.rounds]), shares), strict=True
        )
    ]
    painted = colours(each.label for each in shown)
    lines = list(painted)
    first = min(each.summary.minimum for each in shown)
    scale = alt.Scale(domain=[first * 0.98, usual_end(shown) * 1.01], nice=False, zero=False)
    drawn = (
        alt.Chart(alt.NamedData(name="rows"), height=220)
        .mark_line(interpolate="step-after", clip=True, strokeWidth=2.2)
        .encode(
            x=across(f"ms{_left_out(found, shown)}", scale)("ms"),
            y=alt.Y("share:Q", title="% of inferences at most that long", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=lines, range=list(painted.values())),
                legend=series_legend(),
            ),
            strokeDash=alt.StrokeDash(
                "series:N",
                scale=alt.Scale(domain=lines, range=list(_DASHES[: len(lines)])),
                legend=series_legend(),
            ),
            order=alt.Order("share:Q"),
            tooltip=tooltips(series="series:N", share="% at most", ms="ms"),
        )
    )
    said = "; ".join(
        f"{each.label}: 5% within {milliseconds(each.summary.p5)} ms, half within "
        f"{milliseconds(each.summary.median)} ms, 95% within {milliseconds(each.summary.p95)} ms, all within "
        f"{milliseconds(each.summary.maximum)} ms{_two_groups(each)}"
        for each in shown
    )
    title = "How latencies are distributed"
    return make_chart(About("distribution", title, f"{said}.", files_of(shown)), drawn, {"rows": rows})


def _two_groups(found: Sampled) -> str:
    groups = found.summary.bimodality
    if groups is None or not groups.found:
        return ""
    return f", in two groups around {milliseconds(groups.low_mode)} and {milliseconds(groups.high_mode)} ms"


def over_time_chart(found: Sequence[Sampled]) -> Chart | None:
    """Each series in a lane of its own, in the order it was measured, as percent of its own median: drift and
    jumps show, and what happens to all at once."""
    import altair as alt

    shown = [each for each in found if each.count >= FEWEST_SAMPLES][:MOST_SERIES]
    if not shown:
        return None
    edge = max(_LEAST_RANGE, *(_usual_range(each) for each in shown))
    points: list[Row] = []
    medians: list[Row] = []
    rows: list[Row] = []
    for lane, each in enumerate(shown):
        middle, name, colour = each.summary.median, each.label, series_colour(lane)
        rounds = [(number, values) for number, values in enumerate(each.rounds, start=1) if values]
        kept = thinned(
            [(n, at, len(ms), ms[at]) for n, ms in rounds for at in range(len(ms))],
            MOST_SAMPLES // len(shown),
        )
        points += [
            {
                "series": name,
                "launch": number,
                "_at": round(number - 0.5 + (place + 0.5) / of, 3),
                "ms": round(ms, 5),
                "percent": round(100 * (ms / middle - 1), 2),
                "_y": _height(lane, ms, middle, edge),
                "_colour": colour,
            }
            for number, place, of, ms in kept
        ]
        typical = [(number, float(np.median(values))) for number, values in rounds]
        medians += [
            {
                "series": name,
                "launch": number,
                "_from": number - 0.46,
                "_to": number + 0.46,
                "ms": round(ms, 5),
                "percent": round(100 * (ms / middle - 1), 2),
                "_y": _height(lane, ms, middle, edge),
                "_colour": colour,
            }
            for number, ms in thinned(typical, MOST_SAMPLES // len(shown))
        ]
        rows.append({"_row": lane, "_label": _moved(each), "_middle": lane + 0.62})
    count = max(len(each.rounds) for each in shown)
    unit = shown[0].unit
    total = sum(each.count for each in shown)
    some = f"{len(points):,} of {total:,} inferences shown" if len(points) < total else ""
    note = "; ".join(
        text for text in (some, f"dots at the edge are beyond it{_left_out(found, shown)}") if text
    )
    x = across(
        [f"{unit}; a lane is \u00b1{edge:.0f}% of the series' median (dashed)", note],
        alt.Scale(domain=[0.5, count + 0.5], nice=False, zero=False),
        alt.Axis(tickMinStep=1, format="d", tickCount=min(count, 10), grid=False),
    )
    y, paint = down(len(shown)), alt.Color("_colour:N", scale=None)
    tip = tooltips(series="series:N", launch=unit, ms="ms", percent="% from the median")
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="rows"))
        .mark_rule(strokeDash=[3, 3], opacity=0.5)
        .encode(y=y("_middle")),
        alt.Chart(alt.NamedData(name="points"))
        .mark_point(size=12, opacity=0.45, filled=True)
        .encode(x=x("_at"), y=y("_y"), color=paint, tooltip=tip),
        alt.Chart(alt.NamedData(name="medians"))
        .mark_rule(strokeWidth=3)
        .encode(x=x("_from"), x2=alt.X2("_to"), y=y("_y"), color=paint, tooltip=tip),
        row_labels(y),
        height=_LANE * len(shown),
    )
    said = "; ".join(str(row["_label"]) for row in rows)
    title = f"Latency over {plural(count, unit)}: drift and jumps"
    data = {"rows": rows, "points": points, "medians": medians}
    return make_chart(About("over_time", title, f"{said}.", files_of(shown)), drawn, data)


def _usual_range(found: Sampled) -> float:
    """How far nine in ten lie from the median, in percent, with some room."""
    summary = found.summary
    far = max(summary.p95 - summary.median, summary.median - summary.p5)
    return 150 * far / summary.median if summary.median > 0 else 0.0


def _height(lane: int, ms: float, middle: float, edge: float) -> float:
    """Where in its lane a latency lies."""
    away = 100 * (ms / middle - 1) if middle > 0 else 0.0
    return round(lane + 0.62 - 0.34 * float(np.clip(away / edge, -1, 1)), 4)


def _moved(found: Sampled) -> str:
    medians = [float(np.median(values)) for values in found.rounds if values]
    text = f"{found.label}: medians {milliseconds(min(medians))} to {milliseconds(max(medians))} ms"
    drift = found.summary.drift
    if drift is None:
        return text
    change = f"drift {100 * drift.relative_change:+.1f}% from first to last"
    return f"{text}, {change if drift.found else 'no drift found'}"


def _left_out(found: Sequence[Sampled], shown: Sequence[Sampled]) -> str:
    return f"; {len(shown)} of {len(found)} series shown" if len(shown) < len(found) else ""
