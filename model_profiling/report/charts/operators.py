"""Charts of operators: the longest, the roofline, and what SME2 could bring."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from model_profiling.analysis.headroom import Projection
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import BEST_SEEN, RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, listing, milliseconds, plural
from model_profiling.report.breakdown import break_down
from model_profiling.report.cells import change_cells
from model_profiling.report.charts import (
    BEFORE,
    BOX,
    Layer,
    Row,
    axis,
    band,
    category_colours,
    labelled,
    layer,
    layered,
    named,
    projection,
    series_colour,
    titled,
)
from model_profiling.report.document import Chart

_SHOWN = 10
_TIP = {"operator": "operator", "category": "category", "module": "module"}


def _operator(operator: Operator) -> Row:
    return {
        "operator": named(operator.name),
        "category": operator.category.value,
        "module": named(operator.place),
    }


def _layer_first(operator: Operator) -> str:
    """Operators of one name differ in their layer."""
    return f"{named(operator.place)}, {named(operator.name)}"


def operators_before_after(pairing: Pairing, ordered: Sequence[OperatorPair], name: str) -> Chart | None:
    """The first of `ordered`: hollow the baseline, filled the candidate, coloured by category."""
    first, second = map(named, pairing.sides)
    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    shown = [found for found in ordered if found.baseline_ms > 0 or found.candidate_ms > 0][:_SHOWN]
    if not shown:
        return None
    rows: list[Row] = []
    said: list[str] = []
    for place, found in enumerate(shown):
        was = before.of(found.baseline).cells[0] if found.baseline else None
        now = after.of(found.candidate).cells[0] if found.candidate else None
        _, ratio = change_cells(was or MISSING, now or MISSING, found.ratio, found.speedup)
        gain = f", {ratio}" if ratio != MISSING else ""
        times = f"{was or 'none'} \u2192 {now or 'none'} ms{gain}"
        said.append(f"{_layer_first(found.main)} ({found.category.value}): {times}")
        rows.append(
            {
                **band(place, 0.4, 1.0),
                **_operator(found.main),
                "category": found.category.value,
                "_label": f"{times}: {_layer_first(found.main)}",
                "before": float(was) if was else None,
                "after": float(now) if now else None,
                "change": found.change,
            }
        )
    tip = {**_TIP, "before": f"{first} ms", "after": f"{second} ms", "change": "change"}
    point: Layer = {"y": "_middle", "color": category_colours(rows), "tip": tip, "size": 90, "opacity": 1}
    both = "isValid(datum.before) && isValid(datum.after)"
    layers = [
        layer("rows", "rule", where=both, x="before", x2="after", y="_middle", strokeWidth=2, color=BEFORE),
        layer("rows", "point", x="before", filled=False, strokeWidth=2, **point),
        layer("rows", "point", x="after", filled=True, **point),
    ]
    x = axis(f"ms in a typical traced run; hollow: {first}, filled: {second}", {"domainMin": 0})
    label = named(pairing.label)
    title = f"The {len(rows)} longest operators, {first} and {second}: {label}"
    spec = labelled({"rows": rows}, layers, x)
    return Chart(name, title, f"{'; '.join(said)}.", spec, f"{names.ANALYSIS}: pairs, {label}, operators")


def longest_operators(series: SeriesAnalysis, longest: Sequence[Operator], name: str) -> Chart | None:
    shown = break_down(series)
    bars = []
    for operator in [each for each in longest if each.typical_ms > 0][:_SHOWN]:
        ms, share = shown.of([operator]).cells
        bars.append((operator, f"{ms} ms ({share})", float(ms)))
    title = titled(f"The {len(bars)} longest operators", series.label)
    return _bars(
        name, title, f"{names.ANALYSIS}: series, {named(series.name)}", bars, "ms in a typical traced run"
    )


def arithmetic_of_operators(operators: Sequence[tuple[Operator, str]], whose: str, name: str) -> Chart | None:
    """For runs without times: the operators with most arithmetic, and what their kernels became."""
    bars = []
    for operator, became in [each for each in operators if each[0].source.flops][:_SHOWN]:
        millions = f"{(operator.source.flops or 0) / 1e6:.1f}"
        kernel = f", {named(became)}" if became else ""
        bars.append((operator, f"{millions} million{kernel}", float(millions)))
    title = titled(f"The {len(bars)} operators with most arithmetic", whose)
    return _bars(name, title, names.GRAPH, bars, "million operations; no time was measured")


def _bars(
    name: str, title: str, source: str, bars: Sequence[tuple[Operator, str, float]], unit: str
) -> Chart | None:
    if not bars:
        return None
    rows: list[Row] = [
        {
            **band(place, 0.48, 0.9),
            **_operator(operator),
            "_label": f"{text}: {_layer_first(operator)}",
            "value": value,
        }
        for place, (operator, text, value) in enumerate(bars)
    ]
    tip = {**_TIP, "value": unit}
    layers = [layer("rows", "bar", x="_zero", x2="value", **BOX, color=category_colours(rows), tip=tip)]
    said = "; ".join(f"{_layer_first(each)} ({each.category.value}): {text}" for each, text, _ in bars)
    return Chart(name, title, f"{said}.", labelled({"rows": rows}, layers, axis(unit)), source)


# Roofline: work per second over work per byte, under the best that was seen on this machine.

_MOST = 300
_NAMED = 3
_FEWEST = 2
_HEIGHT = 300
_NARROW = 270
"""Width of the plot on a telephone, the narrowest: labels that do not meet there meet nowhere."""
_BESIDE, _LETTER, _LINE = 13, 6.3, 15
"""Pixels from a point to its label, of a label's letter and of its line."""
_LONGEST_LABEL = 22


def roofline_chart(series: SeriesAnalysis, name: str = "roofline") -> Chart | None:
    """None if no program gives the operators' cost, or too few run long enough for a rate."""
    roof = seen_roofline(series.operators)
    if roof is None:
        return None
    known = [
        gap
        for gap in roof_gaps(series.operators, roof)
        if gap.operator.gflops and gap.operator.source.flops and gap.operator.source.bytes_moved
    ]
    shown = sorted(known, key=lambda gap: -gap.operator.typical_ms)[:_MOST]
    if len(shown) < _FEWEST:
        return None
    peaks = sorted(roof.gflops.items(), key=lambda peak: peak[1])
    ridges = [rate / roof.gbytes_per_s for _, rate in peaks]
    places = [ridges[0] / 2, ridges[-1] * 2, *map(_intensity, shown)]
    left, right = min(places) / 1.6, max(places) * 1.6
    bottom = min(gap.operator.gflops or peaks[0][1] for gap in shown) / 2.5
    points: list[Row] = [
        {
            **_operator(gap.operator),
            "intensity": round(_intensity(gap), 4),
            "gflops": round(gap.operator.gflops or 0.0, 4),
            "efficiency": round(100 * gap.efficiency, 1),
            "ms": round(gap.operator.typical_ms, 5),
        }
        for gap in shown
    ]
    line: list[Row] = [
        {"intensity": at, "gflops": min(rate, at * roof.gbytes_per_s), "precision": precision}
        for (precision, rate), ridge in zip(peaks, ridges, strict=True)
        for at in (left, ridge, right)
    ]
    look = {"format": "~g", "gridOpacity": 0.4}
    x = axis(
        [
            "operations per byte; the larger, the longer",
            f"roof: {BEST_SEEN}; the machine may do better",
            *([f"from the lowest: {listing([name for name, _ in peaks])}"] if len(peaks) > 1 else []),
        ],
        {"type": "log", "domain": [left, right], "nice": False},
        tickCount=5,
        **look,
    )
    top = peaks[-1][1] * 1.8
    y = axis(
        "billion operations per second",
        {"type": "log", "domain": [bottom, top], "nice": False},
        tickCount=4,
        **look,
    )
    tip = {**_TIP, "ms": "ms", "gflops": "billion operations/s", "efficiency": "% of the roof"}
    text: Layer = {"x": "intensity", "y": "_y", "text": "_text", "clip": True}
    layers = [
        layer(
            "roof", "line", x="intensity", y="gflops", detail={"field": "precision"}, strokeWidth=2,
            color=BEFORE, clip=True,
        ),
        layer(
            "points", "point", x="intensity", y="gflops", tip=tip, color=category_colours(points),
            shape={"field": "category", "type": "nominal", "legend": None},
            size={"field": "ms", "type": "quantitative", "legend": None, "scale": {"range": [40, 420]}},
            filled=True, opacity=0.8,
        ),
        layer("labels", "text", where="datum._side == 'right'", align="left", dx=_BESIDE, **text),
        layer("labels", "text", where="datum._side == 'left'", align="right", dx=-_BESIDE, **text),
    ]  # fmt: skip
    data = {"points": points, "roof": line, "labels": _labels(shown, (left, right), (bottom, top))}
    return Chart(
        name,
        titled("Operators under the roof", series.label),
        _summary(series, roof, shown),
        layered(data, layers, x, y, _HEIGHT),
        f"{names.GRAPH} (cost) and {names.ANALYSIS} (time)",
    )


def _intensity(gap: RoofGap) -> float:
    source = gap.operator.source
    return (source.flops or 0) / (source.bytes_moved or 1)


def _labels(shown: Sequence[RoofGap], x: tuple[float, float], y: tuple[float, float]) -> list[Row]:
    """Names of the longest few, each right beside its point; one that would cover another point or label is
    left out. `x` and `y` are the ends of the scales."""

    def place(gap: RoofGap) -> tuple[float, float]:
        across = math.log(_intensity(gap) / x[0]) / math.log(x[1] / x[0])
        up = math.log((gap.operator.gflops or y[0]) / y[0]) / math.log(y[1] / y[0])
        return _NARROW * across, _HEIGHT * (1 - up)

    rows: list[Row] = []
    taken: list[tuple[float, float, float]] = []
    points = {id(gap): place(gap) for gap in shown}
    for gap in shown:
        text = f"{_short(gap.operator.place)}, {100 * gap.efficiency:.1f}%"
        across, down = points[id(gap)]
        wide = _LETTER * len(text)
        others = [(left - 4, left + 4, top) for key, (left, top) in points.items() if key != id(gap)]
        for start, side in ((across + _BESIDE, "right"), (across - _BESIDE - wide, "left")):
            fits = start >= 0 and start + wide <= _NARROW
            if fits and not any(
                abs(down - top) < _LINE and start < right and left < start + wide
                for left, right, top in (*taken, *others)
            ):
                taken.append((start, start + wide, down))
                height = round(gap.operator.gflops or 0.0, 4)
                rows.append(
                    {"intensity": round(_intensity(gap), 4), "_y": height, "_side": side, "_text": text}
                )
                break
        if len(rows) == _NAMED:
            break
    return rows


def _short(name: str) -> str:
    """The end of a module's path, which tells it from its neighbours."""
    name = named(name)
    return name if len(name) <= _LONGEST_LABEL else f"\u2026{name[1 - _LONGEST_LABEL :]}"


def _summary(series: SeriesAnalysis, roof: Roofline, shown: Sequence[RoofGap]) -> str:
    def said(gap: RoofGap) -> str:
        return f"{named(gap.operator.name)} ({named(gap.operator.place)})"

    lowest = min(shown[:10], key=lambda gap: gap.efficiency)
    left_out = len(series.operators) - len(shown)
    rest = f" {plural(left_out, 'operator')} without arithmetic, or too short to tell, not shown."
    peaks = listing([f"{rate:.1f} ({precision})" for precision, rate in roof.gflops.items()])
    return (
        f"The roof, {BEST_SEEN}, is {peaks} billion operations and {roof.gbytes_per_s:.1f} GB "
        f"per second. The longest operator, {said(shown[0])}, reaches {100 * shown[0].efficiency:.1f}%. "
        f"Of the longest, {said(lowest)} is furthest below: {100 * lowest.efficiency:.1f}%."
        f"{rest if left_out else ''}"
    )


_STRIPES = 48
_MOST_PROJECTIONS = 4


def headroom_chart(projections: Sequence[Projection], every: Collection[Series]) -> Chart | None:
    """For every series the measured latency and, striped below it, the projected range."""
    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None]
    known = known[:_MOST_PROJECTIONS]
    if not known:
        return None
    step = max(max(ms, found.ms(found.low) or 0.0) for found, ms in known) / _STRIPES
    rows: list[Row] = []
    measured: list[Row] = []
    projected: list[Row] = []
    stripes: list[Row] = []
    said: list[str] = []
    for found, latency in known:
        name, place = named(found.series.spoken(every)), len(rows)
        # The highest factors give the shortest time.
        short, long = (found.ms(factor) or 0.0 for factor in (found.high, found.low))
        ends = f"{milliseconds(short)} to {milliseconds(long)} ms"
        rows += [
            {"_row": place, "_label": f"{name}: {milliseconds(latency)} ms, measured"},
            {"_row": place + 1, "_label": f"PROJECTION with SME2, not measured: {ends}"},
        ]
        measured.append({**band(place, 0.46, 0.94), "series": name, "ms": round(latency, 5)})
        bar = band(place + 1, 0.46, 0.94)
        projected.append(
            {
                **bar,
                "series": name,
                "from": round(short, 5),
                "to": round(long, 5),
                "least": round(latency / found.ceiling, 5) if math.isfinite(found.ceiling) else 0,
            }
        )
        stripes += [{"_at": round(step * (number + 0.5), 5), **bar} for number in range(int(long / step))]
        said.append(
            f"{name}: {milliseconds(latency)} ms measured; projected, not measured: {ends} with SME2, "
            f"{found.low:.2f}x to {found.high:.2f}x as fast"
        )
    tip = {"series": "series", "ms": "measured ms"}
    ahead = {"series": "series", "from": "projected, from ms", "to": "to ms", "least": "limit, ms"}
    layers = [
        layer("measured", "bar", x="_zero", x2="ms", **BOX, tip=tip, color=series_colour(0)),
        layer("stripes", "rule", x="_at", **BOX, strokeWidth=1, opacity=0.35),
        *projection(ahead),
    ]
    data = {"rows": rows, "measured": measured, "projected": projected, "stripes": stripes}
    spec = labelled(data, layers, axis("ms; striped and dashed: projection, shaded: its range"))
    title = "What SME2 could bring: a projection, not a measurement"
    return Chart("headroom", title, f"{'; '.join(said)}.", spec, f"{names.ANALYSIS}: sme2_headroom")
