"""Charts of end-to-end latency: comparisons, every sample, distribution and drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report.charts.drawing import (
    BOX,
    MOST_SAMPLES,
    OWN_COLOUR,
    SPREAD_TIP,
    LatencySamples,
    Layer,
    Row,
    axis,
    band,
    labelled,
    layer,
    layered,
    named,
    sentence,
    series_colour,
    series_colours,
    span,
    spread,
    thinned,
)
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import speedup_text
from model_profiling.run import names

_SAMPLED_ROW = 72
_LANE = 96
_LEAST_RANGE = 2.0
"""Percent up and down; a smaller range would magnify the steps of the clock."""
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [12, 4])
_MOST_SERIES = 6
"""The most series that lines and colours can tell apart."""
_FEWEST_SAMPLES = 8


def speedups_chart(pairs: Sequence[PairReport]) -> Chart | None:
    """The ratio of every comparison with its interval; 1 is no change."""
    rows: list[Row] = []
    ends = [1.0]
    for pair in pairs:
        found = pair.speedup
        if not pair.comparable or found.ratio is None:
            continue
        low, high = (found.ratio if end is None else end for end in (found.low, found.high))
        ends += [low, high]
        said = f"{named(pair.label)}: {speedup_text(found)}"
        rows.append(
            {
                **band(len(rows), 0.5, 0.98),
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
    scale = {"type": "log", "domain": [min(ends) / 1.04, max(ends) * 1.04], "nice": False}
    tip = {"comparison": "comparison", "ratio": "speedup", "low": "from", "high": "to"}
    mark: Layer = {"y": "_middle", "color": series_colour(0), "tip": tip}
    layers = [
        layer("rows", "rule", x="_none", **BOX, strokeDash=[3, 3]),
        layer("rows", "bar", x="low", x2="high", height=8, opacity=0.45, **mark),
        layer("rows", "point", x="ratio", filled=True, size=110, shape="diamond", opacity=1, **mark),
    ]
    x = axis("times as fast; 1 is no change, more is faster", scale, format="~g", tickCount=5)
    title, summary = "What was compared: speedup with its interval", sentence(rows).replace("; ", ". ")
    spec = labelled({"rows": rows}, layers, x)
    return Chart("speedups", title, summary, spec, f"{names.METRICS}: comparisons")


def latency_chart(found: Sequence[LatencySamples], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples in one row of dots per launch."""
    if not found:
        return None
    last = _usual_end(found)
    most = max(40, MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most, last)]
    rows: list[Row] = [
        {
            **band(place, 0.34, 0.94),
            **spread(each.summary),
            "_colour": series_colour(place),
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "series": each.label,
        }
        for place, each in enumerate(found)
    ]
    tips = {"series": "series", **SPREAD_TIP}, {"series": "series", "launch": found[0].unit, "ms": "ms"}
    layers = [
        layer("rows", "bar", x="p5", x2="p95", **BOX, color=OWN_COLOUR, tip=tips[0], opacity=0.22),
        layer(
            "samples", "point", x="_at", y="_y", color=OWN_COLOUR, tip=tips[1],
            filled=True, size=14, opacity=0.55,
        ),
        layer("rows", "rule", x="median", **BOX, strokeWidth=2.5),
    ]  # fmt: skip
    said = "; ".join(
        f"{each.label}: median {milliseconds(each.summary.median)} ms, nine in ten between "
        f"{milliseconds(each.summary.p5)} and {milliseconds(each.summary.p95)} ms, "
        f"{plural(each.summary.count, 'inference')}"
        for each in found
    )
    x = axis(_axis_title(found, len(samples), last), _latency_scale(found))
    spec = labelled({"rows": rows, "samples": samples}, layers, x, _SAMPLED_ROW)
    return Chart("latency", title, f"{note}{said}.", spec, _files(found))


def _samples(place: int, found: LatencySamples, most: int, last: float) -> Iterator[Row]:
    """Equally many samples of every launch, evenly by size, with its extremes; of many launches, some."""
    lanes = thinned(
        [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms], most // 2
    )
    for lane, (number, values) in enumerate(lanes):
        for value in thinned(values, max(2, most // len(lanes))):
            yield {
                "series": found.label,
                "launch": number,
                "ms": round(value, 5),
                "_at": round(min(value, last), 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": series_colour(place),
            }


def _axis_title(found: Sequence[LatencySamples], shown: int, last: float) -> list[str]:
    said = []
    count = sum(each.count for each in found)
    if shown < count:
        said.append(f"{shown:,} of {count:,} inferences shown")
    if beyond := sum(value > last for each in found for values in each.rounds for value in values):
        said.append(f"{plural(beyond, 'slower one')} at the right edge")
    dots = f"; row of dots: {found[0].unit}" if shown else ""
    return [f"ms; line: median, band: nine in ten{dots}", *([", ".join(said)] if said else [])]


def _usual_end(found: Sequence[LatencySamples]) -> float:
    """The end of a latency axis: stragglers far away must not squeeze all others into a line."""
    far = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    return min(far, max(each.summary.maximum for each in found))


def _latency_scale(found: Sequence[LatencySamples]) -> Row:
    return span(min(each.summary.minimum for each in found) * 0.98, _usual_end(found) * 1.01)


def _files(found: Sequence[LatencySamples]) -> str:
    return ", ".join(dict.fromkeys(each.source for each in found))


def distribution_chart(found: Sequence[LatencySamples]) -> Chart | None:
    """The share of inferences that take at most so long: two groups show as a step, stragglers as a tail."""
    shown = _drawn(found)
    if not shown:
        return None
    shares = range(101)
    rows: list[Row] = [
        {"series": each.label, "share": share, "ms": round(float(value), 5)}
        for each in shown
        for share, value in zip(shares, np.percentile(np.concatenate(each.rounds), shares), strict=True)
    ]
    colour = series_colours("series", (each.label for each in shown))
    dashes = {
        "domain": list(dict.fromkeys(each.label for each in shown)),
        "range": list(_DASHES[: len({each.label for each in shown})]),
    }
    lines = layer(
        "rows", "line", x="ms", y="share", color=colour, order={"field": "share"},
        strokeDash={**colour, "scale": dashes}, tip={"series": "series", "share": "% at most", "ms": "ms"},
        interpolate="step-after", clip=True, strokeWidth=2.2,
    )  # fmt: skip
    x = axis(f"ms{_left_out(found, shown)}", _latency_scale(shown))
    y = axis("% of inferences at most that long", {"domain": [0, 100]})
    said = "; ".join(
        f"{each.label}: 5% within {milliseconds(each.summary.p5)} ms, half within "
        f"{milliseconds(each.summary.median)} ms, 95% within {milliseconds(each.summary.p95)} ms, all within "
        f"{milliseconds(each.summary.maximum)} ms{_two_groups(each)}"
        for each in shown
    )
    spec = layered({"rows": rows}, [lines], x, y)
    return Chart("distribution", "How latencies are distributed", f"{said}.", spec, _files(shown))


def _drawn(found: Sequence[LatencySamples]) -> list[LatencySamples]:
    return [each for each in found if each.count >= _FEWEST_SAMPLES][:_MOST_SERIES]


def _two_groups(found: LatencySamples) -> str:
    groups = found.summary.bimodality
    if groups is None or not groups.found:
        return ""
    return f", in two groups around {milliseconds(groups.low_mode)} and {milliseconds(groups.high_mode)} ms"


def over_time_chart(found: Sequence[LatencySamples]) -> Chart | None:
    """Each series in its own lane, in the order of measuring, as percent of its own median. It shows drift
    and jumps, and what happens to all at once."""
    shown = _drawn(found)
    if not shown:
        return None
    edge = max(_LEAST_RANGE, *(_usual_range(each) for each in shown))
    most = MOST_SAMPLES // len(shown)
    points: list[Row] = []
    medians: list[Row] = []
    rows: list[Row] = []
    for lane, each in enumerate(shown):
        rounds = [(number, values) for number, values in enumerate(each.rounds, start=1) if values]
        every = [(n, at, len(ms), ms[at]) for n, ms in rounds for at in range(len(ms))]
        points += [
            {**_moment(lane, each, n, ms, edge), "_at": round(n - 0.5 + (place + 0.5) / of, 3)}
            for n, place, of, ms in thinned(every, most)
        ]
        medians += [
            {**_moment(lane, each, n, ms, edge), "_from": n - 0.46, "_to": n + 0.46}
            for n, ms in thinned([(n, float(np.median(values))) for n, values in rounds], most)
        ]
        rows.append({"_row": lane, "_label": _moved(each), "_middle": lane + 0.62})
    count, unit = max(len(each.rounds) for each in shown), shown[0].unit
    total = sum(each.count for each in shown)
    some = f"{len(points):,} of {total:,} inferences shown; " if len(points) < total else ""
    x = axis(
        [
            f"{unit}; a lane is \u00b1{edge:.0f}% of the series' median (dashed)",
            f"{some}dots at the edge are beyond it{_left_out(found, shown)}",
        ],
        span(0.5, count + 0.5),
        tickMinStep=1,
        format="d",
        tickCount=min(count, 10),
        grid=False,
    )
    tip = {"series": "series", "launch": unit, "ms": "ms", "percent": "% from the median"}
    mark: Layer = {"y": "_y", "color": OWN_COLOUR, "tip": tip}
    layers = [
        layer("rows", "rule", y="_middle", strokeDash=[3, 3], opacity=0.5),
        layer("points", "point", x="_at", size=12, opacity=0.45, filled=True, **mark),
        layer("medians", "rule", x="_from", x2="_to", strokeWidth=3, **mark),
    ]
    spec = labelled({"rows": rows, "points": points, "medians": medians}, layers, x, _LANE)
    title = f"Latency over {plural(count, unit)}: drift and jumps"
    return Chart("over_time", title, sentence(rows), spec, _files(shown))


def _moment(lane: int, found: LatencySamples, number: int, ms: float, edge: float) -> Row:
    middle = found.summary.median
    away = 100 * (ms / middle - 1) if middle > 0 else 0.0
    return {
        "series": found.label,
        "launch": number,
        "ms": round(ms, 5),
        "percent": round(away, 2),
        "_y": round(lane + 0.62 - 0.34 * float(np.clip(away / edge, -1, 1)), 4),
        "_colour": series_colour(lane),
    }


def _usual_range(found: LatencySamples) -> float:
    """How far nine in ten are from the median, in percent, with some room."""
    summary = found.summary
    far = max(summary.p95 - summary.median, summary.median - summary.p5)
    return 150 * far / summary.median if summary.median > 0 else 0.0


def _moved(found: LatencySamples) -> str:
    medians = [float(np.median(values)) for values in found.rounds if values]
    text = f"{found.label}: medians {milliseconds(min(medians))} to {milliseconds(max(medians))} ms"
    drift = found.summary.drift
    if drift is None:
        return text
    change = f"drift {100 * drift.relative_change:+.1f}% from first to last"
    return f"{text}, {change if drift.found else 'no drift found'}"


def _left_out(found: Sequence[LatencySamples], shown: Sequence[LatencySamples]) -> str:
    return f"; {len(shown)} of {len(found)} series shown" if len(shown) < len(found) else ""
