"""Operators under the roof of what the machine was seen to do: work per second over work per byte."""

from __future__ import annotations

import math
from collections.abc import Sequence

from model_profiling.analysis.roofline import RoofGap, Roofline, roof_gaps, seen_roofline
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.charts.drawing import (
    BEFORE,
    About,
    Row,
    across,
    category_colour,
    make_chart,
    named,
    tooltips,
)
from model_profiling.report.document import Chart
from model_profiling.run import names
from model_profiling.wording import plural

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
