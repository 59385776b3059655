"""Charts of end-to-end latency: comparisons, every sample, distribution, and the order of measuring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from model_profiling.config import names
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import milliseconds, plural
from model_profiling.report import charts as draw
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import speedup_text
from model_profiling.runs import Run
from model_profiling.runs.comparability import shared_launches, timed, way_of
from model_profiling.statistics.speedup import paired_cycles

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
    rows: list[draw.Row] = []
    ends = [1.0]
    for pair in pairs:
        found = pair.speedup
        if not pair.comparable or found.ratio is None:
            continue
        low, high = (found.ratio if end is None else end for end in (found.low, found.high))
        ends += [low, high]
        said = f"{draw.named(pair.label)}: {speedup_text(found)}"
        rows.append(
            {
                **draw.band(len(rows), 0.5, 0.98),
                "_label": said if found.low is None else f"{said}, {found.verdict.value}",
                "_none": 1,
                "comparison": draw.named(pair.label),
                "ratio": round(found.ratio, 4),
                "low": round(low, 4),
                "high": round(high, 4),
            }
        )
    if not rows:
        return None
    scale = {"type": "log", "domain": [min(ends) / 1.04, max(ends) * 1.04], "nice": False}
    tip = {"comparison": "comparison", "ratio": "speedup", "low": "from", "high": "to"}
    mark: draw.Layer = {"y": "_middle", "color": draw.series_colour(0), "tip": tip}
    layers = [
        draw.layer("rows", "rule", x="_none", **draw.BOX, strokeDash=[3, 3]),
        draw.layer("rows", "bar", x="low", x2="high", height=8, opacity=0.45, **mark),
        draw.layer("rows", "point", x="ratio", filled=True, size=110, shape="diamond", opacity=1, **mark),
    ]
    x = draw.axis("times as fast; 1 is no change, more is faster", scale, format="~g", tickCount=5)
    title, summary = "What was compared: speedup with its interval", draw.sentence(rows).replace("; ", ". ")
    spec = draw.labelled({"rows": rows}, layers, x)
    return Chart("speedups", title, summary, spec, f"{names.METRICS}: comparisons")


def latency_chart(found: Sequence[draw.LatencySamples], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples in one row of dots per launch."""
    if not found:
        return None
    last = _usual_end(found)
    most = max(40, draw.MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most, last)]
    rows: list[draw.Row] = [
        {
            **draw.band(place, 0.34, 0.94),
            **draw.spread(each.summary),
            "_colour": draw.series_colour(place),
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "series": each.label,
        }
        for place, each in enumerate(found)
    ]
    tips = {"series": "series", **draw.SPREAD_TIP}, {"series": "series", "launch": found[0].unit, "ms": "ms"}
    layers = [
        draw.layer(
            "rows", "bar", x="p5", x2="p95", **draw.BOX, color=draw.OWN_COLOUR, tip=tips[0], opacity=0.22
        ),
        draw.layer(
            "samples", "point", x="_at", y="_y", color=draw.OWN_COLOUR, tip=tips[1],
            filled=True, size=14, opacity=0.55,
        ),
        draw.layer("rows", "rule", x="median", **draw.BOX, strokeWidth=2.5),
    ]  # fmt: skip
    said = "; ".join(
        f"{each.label}: median {milliseconds(each.summary.median)} ms, nine in ten between "
        f"{milliseconds(each.summary.p5)} and {milliseconds(each.summary.p95)} ms, "
        f"{plural(each.summary.count, 'inference')}"
        for each in found
    )
    x = draw.axis(_axis_title(found, len(samples), last), _latency_scale(found))
    spec = draw.labelled({"rows": rows, "samples": samples}, layers, x, _SAMPLED_ROW)
    return Chart("latency", title, f"{note}{said}.", spec, _files(found))


def _samples(place: int, found: draw.LatencySamples, most: int, last: float) -> Iterator[draw.Row]:
    """Equally many samples of every launch, evenly by size, with its extremes; of many launches, some."""
    lanes = draw.thinned(
        [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms], most // 2
    )
    for lane, (number, values) in enumerate(lanes):
        for value in draw.thinned(values, max(2, most // len(lanes))):
            yield {
                "series": found.label,
                "launch": number,
                "ms": round(value, 5),
                "_at": round(min(value, last), 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": draw.series_colour(place),
            }


def _axis_title(found: Sequence[draw.LatencySamples], shown: int, last: float) -> list[str]:
    said = []
    count = sum(each.count for each in found)
    if shown < count:
        said.append(f"{shown:,} of {count:,} inferences shown")
    if beyond := sum(value > last for each in found for values in each.rounds for value in values):
        said.append(f"{plural(beyond, 'slower one')} at the right edge")
    dots = f"; row of dots: {found[0].unit}" if shown else ""
    return [f"ms; line: median, band: nine in ten{dots}", *([", ".join(said)] if said else [])]


def _usual_end(found: Sequence[draw.LatencySamples]) -> float:
    """The end of a latency axis: stragglers far away must not squeeze all others into a line."""
    far = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    return min(far, max(each.summary.maximum for each in found))


def _latency_scale(found: Sequence[draw.LatencySamples]) -> draw.Row:
    return draw.span(min(each.summary.minimum for each in found) * 0.98, _usual_end(found) * 1.01)


def _files(found: Sequence[draw.LatencySamples]) -> str:
    return ", ".join(dict.fromkeys(each.source for each in found))


def distribution_chart(found: Sequence[draw.LatencySamples]) -> Chart | None:
    """The share of inferences that take at most so long: two groups show as a step, stragglers as a tail."""
    shown = _drawn(found)
    if not shown:
        return None
    shares = range(101)
    rows: list[draw.Row] = [
        {"series": each.label, "share": share, "ms": round(float(value), 5)}
        for each in shown
        for share, value in zip(shares, np.percentile(np.concatenate(each.rounds), shares), strict=True)
    ]
    colour = draw.series_colours("series", (each.label for each in shown))
    dashes = {
        "domain": list(dict.fromkeys(each.label for each in shown)),
        "range": list(_DASHES[: len({each.label for each in shown})]),
    }
    lines = draw.layer(
        "rows", "line", x="ms", y="share", color=colour, order={"field": "share"},
        strokeDash={**colour, "scale": dashes}, tip={"series": "series", "share": "% at most", "ms": "ms"},
        interpolate="step-after", clip=True, strokeWidth=2.2,
    )  # fmt: skip
    x = draw.axis(f"ms{_left_out(found, shown)}", _latency_scale(shown))
    y = draw.axis("% of inferences at most that long", {"domain": [0, 100]})
    said = "; ".join(
        f"{each.label}: 5% within {milliseconds(each.summary.p5)} ms, half within "
        f"{milliseconds(each.summary.median)} ms, 95% within {milliseconds(each.summary.p95)} ms, all within "
        f"{milliseconds(each.summary.maximum)} ms"
        for each in shown
    )
    spec = draw.layered({"rows": rows}, [lines], x, y)
    return Chart("distribution", "How latencies are distributed", f"{said}.", spec, _files(shown))


def _drawn(found: Sequence[draw.LatencySamples]) -> list[draw.LatencySamples]:
    return [each for each in found if each.count >= _FEWEST_SAMPLES][:_MOST_SERIES]


def over_time_chart(found: Sequence[draw.LatencySamples]) -> Chart | None:
    """Each series in its own lane, in the order of measuring, as percent of its own median. It shows
    jumps, and what happens to all at once."""
    shown = _drawn(found)
    if not shown:
        return None
    edge = max(_LEAST_RANGE, *(_usual_range(each) for each in shown))
    most = draw.MOST_SAMPLES // len(shown)
    points: list[draw.Row] = []
    medians: list[draw.Row] = []
    rows: list[draw.Row] = []
    for lane, each in enumerate(shown):
        rounds = [(number, values) for number, values in enumerate(each.rounds, start=1) if values]
        every = [(n, at, len(ms), ms[at]) for n, ms in rounds for at in range(len(ms))]
        points += [
            {**_moment(lane, each, n, ms, edge), "_at": round(n - 0.5 + (place + 0.5) / of, 3)}
            for n, place, of, ms in draw.thinned(every, most)
        ]
        medians += [
            {**_moment(lane, each, n, ms, edge), "_from": n - 0.46, "_to": n + 0.46}
            for n, ms in draw.thinned([(n, float(np.median(values))) for n, values in rounds], most)
        ]
        rows.append({"_row": lane, "_label": _moved(each), "_middle": lane + 0.62})
    count, unit = max(len(each.rounds) for each in shown), shown[0].unit
    total = sum(each.count for each in shown)
    some = f"{len(points):,} of {total:,} inferences shown; " if len(points) < total else ""
    x = draw.axis(
        [
            f"{unit}; dashed: the median; a lane shows \u00b1{edge:.0f}%",
            f"{some}dots at the edge are outside that{_left_out(found, shown)}",
        ],
        draw.span(0.5, count + 0.5),
        tickMinStep=1,
        format="d",
        tickCount=min(count, 10),
        grid=False,
    )
    tip = {"series": "series", "launch": unit, "ms": "ms", "percent": "% from the median"}
    mark: draw.Layer = {"y": "_y", "color": draw.OWN_COLOUR, "tip": tip}
    layers = [
        draw.layer("rows", "rule", y="_middle", strokeDash=[3, 3], opacity=0.5),
        draw.layer("points", "point", x="_at", size=12, opacity=0.45, filled=True, **mark),
        draw.layer("medians", "rule", x="_from", x2="_to", strokeWidth=3, **mark),
    ]
    spec = draw.labelled({"rows": rows, "points": points, "medians": medians}, layers, x, _LANE)
    title = f"Latency over {plural(count, unit)}"
    return Chart("over_time", title, draw.sentence(rows), spec, _files(shown))


def _moment(lane: int, found: draw.LatencySamples, number: int, ms: float, edge: float) -> draw.Row:
    middle = found.summary.median
    away = 100 * (ms / middle - 1) if middle > 0 else 0.0
    return {
        "series": found.label,
        "launch": number,
        "ms": round(ms, 5),
        "percent": round(away, 2),
        "_y": round(lane + 0.62 - 0.34 * float(np.clip(away / edge, -1, 1)), 4),
        "_colour": draw.series_colour(lane),
    }


def _usual_range(found: draw.LatencySamples) -> float:
    """How far nine in ten are from the median, in percent, with some room."""
    summary = found.summary
    far = max(summary.p95 - summary.median, summary.median - summary.p5)
    return 150 * far / summary.median if summary.median > 0 else 0.0


def _moved(found: draw.LatencySamples) -> str:
    medians = [float(np.median(values)) for values in found.rounds if values]
    return f"{found.label}: medians {milliseconds(min(medians))} to {milliseconds(max(medians))} ms"


def _left_out(found: Sequence[draw.LatencySamples], shown: Sequence[draw.LatencySamples]) -> str:
    return f"; {len(shown)} of {len(found)} series shown" if len(shown) < len(found) else ""


# Turns of two programs and their ratio, which shows how the machine's noise cancels.

_MOST_TURNS = 240


_RATIO = "ratio"


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
    first, second = map(draw.named, pair.sides)
    values = {first: whole[:, 0], second: whole[:, 1], _RATIO: whole[:, 0] / whole[:, 1]}
    away = {what: 100 * (each / np.median(each) - 1) for what, each in values.items()}
    ends = {what: np.percentile(each, [5, 95]) for what, each in away.items()}
    edge = max(_LEAST_RANGE, *(2 * float(np.abs(each).max()) for each in ends.values()))

    def from_median(percent: float) -> draw.Row:
        return {"percent": round(percent, 3), "_at": round(float(np.clip(percent, -edge, edge)), 3)}

    rows: list[draw.Row] = [
        {
            "turn": at + 1,
            "launch": int(launches[at]),
            "what": what,
            "value": round(float(values[what][at]), 5),
            **from_median(float(each[at])),
        }
        for what, each in away.items()
        for at in draw.thinned(range(len(whole)), _MOST_TURNS)
    ]
    middle = float(np.median(values[_RATIO]))
    medians = [float(np.median(launch[:, 0] / launch[:, 1])) for launch in cycles]
    last = np.cumsum([len(launch) for launch in cycles])
    counted: list[draw.Row] = [
        {
            "launch": number,
            "from": int(end) - len(launch) + 1,
            "to": int(end),
            "ratio": round(ratio, 5),
            **from_median(100 * (ratio / middle - 1)),
        }
        for number, (launch, end, ratio) in enumerate(zip(cycles, last, medians, strict=True), start=1)
    ]
    lines = {first: draw.BEFORE, second: draw.AFTER, _RATIO: "#b5532f"}
    colour = draw.palette("what", lines, orient="top", columns=3, symbolStrokeWidth=3)
    dashes = {**colour, "scale": {"domain": list(lines), "range": [[1, 0], [4, 2], [1, 0]]}}
    tip = {
        "what": "what", "launch": "launch", "turn": "turn", "value": "ms, or ratio",
        "percent": "% from its median",
    }  # fmt: skip
    line: draw.Layer = {
        "x": "turn", "y": "_at", "color": colour, "strokeDash": dashes, "tip": tip, "clip": True,
        "detail": {"field": "launch", "type": "nominal"},
    }  # fmt: skip
    counts = {"launch": "launch", "ratio": "median ratio", "percent": "% from the median of all"}
    layers = [
        draw.layer("rows", "line", where="datum.what !== 'ratio'", strokeWidth=1.1, **line),
        draw.layer("rows", "line", where="datum.what === 'ratio'", strokeWidth=1.8, **line),
        draw.layer("launches", "rule", x="from", x2="to", y="_at", tip=counts, strokeWidth=4, clip=True),
    ]
    some = f"; {_MOST_TURNS} of {len(whole):,} shown" if len(whole) > _MOST_TURNS else ""
    x = draw.axis(
        [
            f"turn, {plural(len(cycles), 'launch')} one after another{some}",
            "bar: a launch's median ratio, which counts",
        ],
        draw.span(1, max(2, len(whole))),
        grid=False,
        tickCount=6,
    )
    y = draw.axis("% from its own median", draw.span(-edge, edge))
    before, after, ratio = (float(each[1] - each[0]) for each in ends.values())
    summary = (
        f"Over {plural(len(whole), 'turn')} in {plural(len(cycles), 'launch')} nine in ten times of {first} "
        f"lie within {before:.1f}% of each other, of {second} within {after:.1f}%, their ratios within "
        f"{ratio:.1f}%. Of each launch the median of its ratios counts: {min(medians):.3f}x to "
        f"{max(medians):.3f}x, together {found.ratio:.3f}x."
    )
    title = f"Turn by turn, {draw.named(pair.label)}: either side, and the ratio of the two"
    spec = draw.layered({"rows": rows, "launches": counted}, layers, x, y, 240)
    return Chart(name, title, summary, spec, f"{names.JOURNAL}: turns_ns")
