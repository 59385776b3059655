"""Operators as pictures: the longest, under the roof of the machine, and what SME2 could bring."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from model_profiling.analysis.headroom import Projection
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.core.formatting import milliseconds, plural, speedup
from model_profiling.report.breakdown import break_down
from model_profiling.report.charts.drawing import (
    BEFORE,
    ROW,
    About,
    Row,
    across,
    box,
    category_colour,
    down,
    make_chart,
    named,
    row_labels,
    series_colour,
    tooltips,
)
from model_profiling.report.document import Chart
from model_profiling.run import names

# Operators as pictures: what became of the longest, which take longest, which have most arithmetic.

_SHOWN = 10


def operators_before_after(pairing: Pairing, ordered: Sequence[OperatorPair], name: str) -> Chart | None:
    """The first of `ordered`: hollow before, filled after, coloured by category."""
    import altair as alt

    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    shown = [found for found in ordered if found.baseline_ms > 0 or found.candidate_ms > 0][:_SHOWN]
    if not shown:
        return None
    rows: list[Row] = []
    said: list[str] = []
    for place, found in enumerate(shown):
        was = before.of(found.baseline).cells[0] if found.baseline else None
        now = after.of(found.candidate).cells[0] if found.candidate else None
        gain = f", {speedup(found.ratio)}" if found.ratio is not None else ""
        times = f"{was or 'none'} \u2192 {now or 'none'} ms{gain}"
        operator = named(found.main.name)
        said.append(f"{operator} ({found.category.value}): {times}")
        rows.append(
            {
                "_row": place,
                "_middle": place + 0.7,
                "_label": f"{times}: {operator}, {named(found.main.place)}",
                "operator": operator,
                "category": found.category.value,
                "module": named(found.main.place),
                "before": float(was) if was else None,
                "after": float(now) if now else None,
                "change": found.change,
            }
        )
    x, y = (
        across("ms with the tracer on; hollow: before, filled: after", alt.Scale(domainMin=0)),
        down(len(rows)),
    )
    base, colour = (
        alt.Chart(alt.NamedData(name="rows")),
        category_colour(str(row["category"]) for row in rows),
    )
    tip = tooltips(
        operator="operator:N", category="category:N", module="module:N", before="before ms", after="after ms",
        change="change:N",
    )  # fmt: skip
    both = base.transform_filter("isValid(datum.before) && isValid(datum.after)")
    drawn = alt.layer(
        both.mark_rule(strokeWidth=2, color=BEFORE).encode(x=x("before"), x2=alt.X2("after"), y=y("_middle")),
        base.mark_point(size=90, filled=False, strokeWidth=2, opacity=1).encode(
            x=x("before"), y=y("_middle"), color=colour, tooltip=tip
        ),
        base.mark_point(size=90, filled=True, opacity=1).encode(
            x=x("after"), y=y("_middle"), color=colour, tooltip=tip
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    title = f"The {len(rows)} longest operators before and after: {named(pairing.label)}"
    source = f"{names.ANALYSIS}: pairs, {named(pairing.label)}, operators"
    return make_chart(About(name, title, f"{'; '.join(said)}.", source), drawn, {"rows": rows})


def longest_operators(series: SeriesAnalysis, longest: Sequence[Operator], name: str) -> Chart | None:
    """One series: bars, coloured by category."""
    shown = break_down(series)
    bars = []
    for operator in [each for each in longest if each.typical_ms > 0][:_SHOWN]:
        ms, share = shown.of([operator]).cells
        bars.append((operator, f"{ms} ms ({share})", float(ms)))
    title = f"The {len(bars)} longest operators: {named(series.name)}"
    about = About(name, title, "", f"{names.ANALYSIS}: series, {named(series.name)}")
    return _bars(about, bars, "ms with the tracer on")


def arithmetic_of_operators(operators: Sequence[tuple[Operator, str]], whose: str, name: str) -> Chart | None:
    """For runs without time: the operators with most arithmetic, and what their kernels became."""
    bars = []
    for operator, became in [each for each in operators if each[0].source.flops][:_SHOWN]:
        millions = f"{(operator.source.flops or 0) / 1e6:.1f}"
        kernel = f", {named(became)}" if became else ""
        bars.append((operator, f"{millions} million{kernel}", float(millions)))
    title = f"The {len(bars)} operators with most arithmetic: {named(whose)}"
    return _bars(About(name, title, "", names.GRAPH), bars, "million operations; no time was measured")


def _bars(about: About, bars: Sequence[tuple[Operator, str, float]], axis: str) -> Chart | None:
    import altair as alt

    if not bars:
        return None
    rows: list[Row] = [
        {
            "_row": place,
            "_top": place + 0.48,
            "_bottom": place + 0.9,
            "_label": f"{text}: {named(operator.name)}, {named(operator.place)}",
            "operator": named(operator.name),
            "category": operator.category.value,
            "module": named(operator.place),
            "_zero": 0,
            "value": value,
        }
        for place, (operator, text, value) in enumerate(bars)
    ]
    x, y = across(axis), down(len(rows))
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="rows"))
        .mark_bar()
        .encode(
            **box(x, y, "_zero", "value"),
            color=category_colour(str(row["category"]) for row in rows),
            tooltip=tooltips(operator="operator:N", category="category:N", module="module:N", value=axis),
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    said = "; ".join(
        f"{named(operator.name)} ({operator.category.value}): {text}" for operator, text, _ in bars
    )
    return make_chart(replace(about, summary=f"{said}."), drawn, {"rows": rows})


# Operators under the roof of what the machine was seen to do: work per second over work per byte.

_MOST = 300
_NAMED = 3
_FEWEST = 2
_BELOW, _LABEL_STEP = 1.22, 1.45
"""How much lower, as factors, a label stands than its point, and the next label at least."""


def roofline_chart(series: SeriesAnalysis, name: str = "roofline") -> Chart | None:
    """None where no program gives the operators' cost, or too few are long enough for a rate."""
    import altair as alt

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
    points = [_point(gap) for gap in shown]
    ridge = roof.gflops / roof.gbytes_per_s
    places = [ridge / 2, ridge * 2, *map(_intensity, shown)]
    left, right = min(places) / 1.6, max(places) * 1.6
    bottom = min(gap.operator.gflops or roof.gflops for gap in shown) / 2.5
    line: list[Row] = [
        {"intensity": at, "gflops": min(roof.gflops, at * roof.gbytes_per_s)} for at in (left, ridge, right)
    ]
    x = across(
        ["operations per byte; the larger, the longer", f"roof: {roof.source}; the machine may do better"],
        alt.Scale(type="log", domain=[left, right], nice=False),
        alt.Axis(format="~g", tickCount=5, gridOpacity=0.4),
    )
    scale = alt.Scale(type="log", domain=[bottom, roof.gflops * 1.8], nice=False)
    axis = alt.Axis(format="~g", tickCount=4, gridOpacity=0.4)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=scale, title="billion operations per second", axis=axis)

    tip = tooltips(
        operator="operator:N", category="category:N", module="module:N", ms="ms",
        gflops="billion operations/s", efficiency="% of the roof",
    )  # fmt: skip
    labels = _labels(shown, math.sqrt(left * right))
    text = alt.Chart(alt.NamedData(name="labels"))
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="roof"))
        .mark_line(strokeWidth=2, color=BEFORE, clip=True)
        .encode(x=x("intensity"), y=y("gflops")),
        alt.Chart(alt.NamedData(name="points"))
        .mark_point(filled=True, opacity=0.8)
        .encode(
            x=x("intensity"),
            y=y("gflops"),
            color=category_colour(gap.operator.category.value for gap in shown),
            shape=alt.Shape("category:N", legend=None),
            size=alt.Size("ms:Q", legend=None, scale=alt.Scale(range=[40, 420])),
            tooltip=tip,
        ),
        text.transform_filter("datum.left")
        .mark_text(align="left", dx=13, clip=True)
        .encode(x=x("intensity"), y=y("_y"), text=alt.Text("_text:N")),
        text.transform_filter("!datum.left")
        .mark_text(align="right", dx=-13, clip=True)
        .encode(x=x("intensity"), y=y("_y"), text=alt.Text("_text:N")),
        height=300,
    )
    title = f"Operators under the roof: {named(series.name)}"
    data = {"points": points, "roof": line, "labels": labels}
    source = f"{names.GRAPH} (cost) and {names.ANALYSIS} (time)"
    return make_chart(About(name, title, _summary(series, roof, shown), source), drawn, data)


def _intensity(gap: RoofGap) -> float:
    source = gap.operator.source
    return (source.flops or 0) / (source.bytes_moved or 1)


def _point(gap: RoofGap) -> Row:
    operator = gap.operator
    return {
        "operator": named(operator.name),
        "category": operator.category.value,
        "module": named(operator.place),
        "intensity": round(_intensity(gap), 4),
        "gflops": round(operator.gflops or 0.0, 4),
        "efficiency": round(100 * gap.efficiency, 1),
        "ms": round(operator.typical_ms, 5),
    }


def _labels(shown: Sequence[RoofGap], middle: float) -> list[Row]:
    """The longest few by name beside their points, moved down where they would cover each other."""
    rows: list[Row] = []
    free = math.inf
    for gap in sorted(shown[:_NAMED], key=lambda gap: -(gap.operator.gflops or 0.0)):
        height = min((gap.operator.gflops or 0.0) / _BELOW, free)
        free = height / _LABEL_STEP
        rows.append(
            {
                "intensity": round(_intensity(gap), 4),
                "_y": round(height, 4),
                "left": _intensity(gap) < middle,
                "_text": f"{named(gap.operator.place)}, {100 * gap.efficiency:.1f}%",
            }
        )
    return rows


def _summary(series: SeriesAnalysis, roof: Roofline, shown: Sequence[RoofGap]) -> str:
    def said(gap: RoofGap) -> str:
        return f"{named(gap.operator.name)} ({named(gap.operator.place)})"

    lowest = min(shown[:10], key=lambda gap: gap.efficiency)
    left_out = len(series.operators) - len(shown)
    rest = f" {plural(left_out, 'operator')} without arithmetic, or too short to tell, not shown."
    return (
        f"The roof, {roof.source}, is {roof.gflops:.1f} billion operations and {roof.gbytes_per_s:.1f} GB "
        f"per second. The longest operator, {said(shown[0])}, reaches {100 * shown[0].efficiency:.1f}%. "
        f"Of the longest, {said(lowest)} is furthest below: {100 * lowest.efficiency:.1f}%."
        f"{rest if left_out else ''}"
    )


# What SME2 could bring, drawn as what it is: a striped outline below the solid bar of a measurement.

_STRIPES = 48
_SHOWN_PROJECTIONS = 4


def headroom_chart(projections: Sequence[Projection]) -> Chart | None:
    """For every series the latency that was measured, and below it the range of the projection."""
    import altair as alt

    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None][
        :_SHOWN_PROJECTIONS
    ]
    if not known:
        return None
    longest = max(max(ms, found.ms(found.low) or 0.0) for found, ms in known)
    rows: list[Row] = []
    measured: list[Row] = []
    projected: list[Row] = []
    stripes: list[Row] = []
    said: list[str] = []
    for found, latency in known:
        name, place = named(str(found.series)), len(rows)
        # The highest factors give the shortest time.
        short, long = (found.ms(factor) or 0.0 for factor in (found.high, found.low))
        span = f"{milliseconds(short)} to {milliseconds(long)} ms"
        rows += [
            {"_row": place, "_label": f"{name}: {milliseconds(latency)} ms, measured"},
            {"_row": place + 1, "_label": f"PROJECTION with SME2, not measured: {span}"},
        ]
        measured.append(
            {
                "series": name,
                "_zero": 0,
                "ms": round(latency, 5),
                "_top": place + 0.46,
                "_bottom": place + 0.94,
            }
        )
        bar = {"_top": place + 1.46, "_bottom": place + 1.94}
        projected.append(
            {
                "series": name,
                "_zero": 0,
                "from": round(short, 5),
                "to": round(long, 5),
                "least": round(latency / found.ceiling, 5) if math.isfinite(found.ceiling) else 0,
                **bar,
            }
        )
        step = longest / _STRIPES
        stripes += [{"_at": round(step * (number + 0.5), 5), **bar} for number in range(int(long / step))]
        said.append(
            f"{name}: {milliseconds(latency)} ms measured; projected, not measured: {span} with SME2, "
            f"{found.low:.2f}x to {found.high:.2f}x as fast"
        )
    x, y = across("ms; striped and dashed: projection, shaded: its range"), down(len(rows))
    ahead = alt.Chart(alt.NamedData(name="projected"))
    tip = {"series": "series:N", "from": "projected, from ms", "to": "to ms", "least": "ceiling, ms"}
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="measured"))
        .mark_bar(color=series_colour(0))
        .encode(
            **box(x, y, "_zero", "ms"),
            tooltip=tooltips(series="series:N", ms="measured ms"),
        ),
        alt.Chart(alt.NamedData(name="stripes"))
        .mark_rule(strokeWidth=1, opacity=0.35)
        .encode(x=x("_at"), y=y("_top"), y2=alt.Y2("_bottom")),
        ahead.mark_bar(color=BEFORE, opacity=0.4).encode(**box(x, y, "from", "to")),
        ahead.mark_bar(fillOpacity=0, strokeDash=[5, 3], strokeWidth=1.5, stroke=BEFORE).encode(
            **box(x, y, "_zero", "to"), tooltip=tooltips(**tip)
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    title = "What SME2 could bring: a projection, not a measurement"
    about = About("headroom", title, f"{'; '.join(said)}.", f"{names.ANALYSIS}: sme2_headroom")
    data = {"rows": rows, "measured": measured, "projected": projected, "stripes": stripes}
    return make_chart(about, drawn, data)
