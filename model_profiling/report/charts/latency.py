"""End-to-end latency as pictures: what was compared, every sample, spread and drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report.charts.drawing import (
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    MOST_SERIES,
    ROW,
    About,
    Row,
    Sampled,
    across,
    box,
    colours,
    down,
    files_of,
    make_chart,
    named,
    row_labels,
    series_colour,
    series_legend,
    thinned,
    tooltips,
    usual_end,
)
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import speedup_text
from model_profiling.run import names

# End-to-end latency as pictures: what was compared, and every sample with the median and the usual range.

_SAMPLED_ROW = 72


def speedups_chart(pairs: Sequence[PairReport]) -> Chart | None:
    """Every comparison's ratio with its interval; 1 is no change."""
    import altair as alt

    rows: list[Row] = []
    ends = [1.0]
    for pair in pairs:
        found, place = pair.speedup, len(rows)
        if not pair.comparable or found.ratio is None:
            continue
        low, high = (found.ratio if end is None else end for end in (found.low, found.high))
        ends += [low, high]
        said = f"{named(pair.label)}: {speedup_text(found)}"
        rows.append(
            {
                "_row": place,
                "_top": place + 0.5,
                "_middle": place + 0.74,
                "_bottom": place + 0.98,
                "_label": said if found.low is None else f"{said}, {found.verdict.value}",
                "_none": 1,
                "comparison": named(pair.label),
                "ratio": round(found.ratio, 4),
                "low": round(low, 4),
                "high": round(high, 4),
            }
        )
    if not rows:
        return None
    scale = alt.Scale(type="log", domain=[min(ends) / 1.04, max(ends) * 1.04], nice=False)
    title = "times as fast; 1 is no change, more is faster"
    x, y = across(title, scale, alt.Axis(format="~g", tickCount=5)), down(len(rows))
    base, colour = alt.Chart(alt.NamedData(name="rows")), series_colour(0)
    shown = tooltips(comparison="comparison:N", ratio="speedup", low="from", high="to")
    drawn = alt.layer(
        base.mark_rule(strokeDash=[3, 3]).encode(x=x("_none"), y=y("_top"), y2=alt.Y2("_bottom")),
        base.mark_bar(height=8, opacity=0.45, color=colour).encode(
            x=x("low"), x2=alt.X2("high"), y=y("_middle"), tooltip=shown
        ),
        base.mark_point(filled=True, size=110, shape="diamond", opacity=1, color=colour).encode(
            x=x("ratio"), y=y("_middle"), tooltip=shown
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    said = ". ".join(str(row["_label"]) for row in rows)
    title = "What was compared: speedup with its interval"
    return make_chart(
        About("speedups", title, f"{said}.", f"{names.METRICS}: comparisons"), drawn, {"rows": rows}
    )


def latency_chart(found: Sequence[Sampled], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples: one row of dots for a launch."""
    import altair as alt

    if not found:
        return None
    last = usual_end(found)
    most = max(40, MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most, last)]
    rows: list[Row] = [
        {
            "_row": place,
            "series": each.label,
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "median": round(each.summary.median, 5),
            "p5": round(each.summary.p5, 5),
            "p95": round(each.summary.p95, 5),
            "_top": place + 0.34,
            "_bottom": place + 0.94,
            "_colour": series_colour(place),
        }
        for place, each in enumerate(found)
    ]
    scale = alt.Scale(
        domain=[min(each.summary.minimum for each in found) * 0.98, last * 1.01], nice=False, zero=False
    )
    x, y = across(_axis_title(found, len(samples), last), scale), down(len(found))
    paint = alt.Color("_colour:N", scale=None)
    base = alt.Chart(alt.NamedData(name="rows"))
    drawn = alt.layer(
        base.mark_bar(opacity=0.22).encode(
            **box(x, y, "p5", "p95"),
            color=paint,
            tooltip=tooltips(series="series:N", median="median ms", p5="5% ms", p95="95% ms"),
        ),
        alt.Chart(alt.NamedData(name="samples"))
        .mark_point(filled=True, size=14, opacity=0.55)
        .encode(
            x=x("_at"),
            y=y("_y"),
            color=paint,
            tooltip=tooltips(series="series:N", launch=found[0].unit, ms="ms"),
        ),
        base.mark_rule(strokeWidth=2.5).encode(x=x("median"), y=y("_top"), y2=alt.Y2("_bottom")),
        row_labels(y),
        height=_SAMPLED_ROW * len(found),
    )
    said = "; ".join(
        f"{each.label}: median {milliseconds(each.summary.median)} ms, nine in ten between "
        f"{milliseconds(each.summary.p5)} and {milliseconds(each.summary.p95)} ms, "
        f"{plural(each.summary.count, 'inference')}"
        for each in found
    )
    about = About("latency", title, f"{note}{said}.", files_of(found))
    return make_chart(about, drawn, {"rows": rows, "samples": samples})


def _samples(place: int, found: Sampled, most: int, last: float) -> Iterator[Row]:
    """Of every launch as many, evenly by size, its fastest and slowest among them; of many launches some."""
    name, colour = found.label, series_colour(place)
    lanes = thinned(
        [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms], most // 2
    )
    for lane, (number, values) in enumerate(lanes):
        for value in thinned(values, max(2, most // len(lanes))):
            yield {
                "series": name,
                "launch": number,
                "ms": round(value, 5),
                "_at": round(min(value, last), 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": colour,
            }


def _axis_title(found: Sequence[Sampled], shown: int, last: float) -> list[str]:
    said = []
    count = sum(each.count for each in found)
    if shown < count:
        said.append(f"{shown:,} of {count:,} inferences shown")
    if beyond := sum(value > last for each in found for values in each.rounds for value in values):
        said.append(f"{plural(beyond, 'slower one')} at the right edge")
    dots = f"; row of dots: {found[0].unit}" if shown else ""
    return [f"ms; line: median, band: nine in ten{dots}", *([", ".join(said)] if said else [])]


# How latencies spread, and how they moved while they were measured.

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
