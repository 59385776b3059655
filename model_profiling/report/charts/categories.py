"""Where the time goes, stacked: before and after one above the other, so that the shift is seen; where times
mean nothing, where the work is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from model_profiling.analysis.categories import Category
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.report.breakdown import Breakdown, break_down
from model_profiling.report.charts.drawing import (
    PARTS,
    ROW,
    About,
    Row,
    across,
    box,
    category_colour,
    down,
    ink_on,
    make_chart,
    named,
    row_labels,
    tooltips,
    work_bars,
)
from model_profiling.report.document import Chart
from model_profiling.report.pair_words import largest_parts
from model_profiling.run import names
from model_profiling.wording import plural, size

if TYPE_CHECKING:
    import altair

_STACK = 76
_NAMED, _LABELLED = 0.34, 0.1
"""Which part of the axis a segment fills before its name, or its share alone, fits into it on a phone."""


def category_shift(pairing: Pairing, name: str) -> Chart:
    """Milliseconds of each part before and after; the part that is the largest after is followed across."""
    sides = {"before": break_down(pairing.baseline), "after": break_down(pairing.candidate)}
    before, after = (part.name for part in largest_parts(pairing))
    was, now = (sides[side].parts[after].cells[1] for side in sides)
    largest = sides["before"].parts[before].cells[1]
    if before == after:
        title = f"{after} stays the largest part"
        shift = f"{after} is the largest part before ({was}) and after ({now})."
    else:
        title = f"the bottleneck moves from {before} to {after}"
        shift = (
            f"The bottleneck moves from {before} ({largest} of the time before) to {after} ({was} before, "
            f"{now} after)."
        )
    label = named(pairing.label)
    about = About(name, f"Where the time goes, {label}: {title}", shift, f"{names.ANALYSIS}: pairs, {label}")
    return _stacked(about, sides, {"before": before, "after": after})


def categories_of(series: SeriesAnalysis, name: str) -> Chart:
    """One series."""
    shown, label = break_down(series), named(series.name)
    largest = max(shown.parts, key=lambda part: shown.parts[part].percent)
    words = f"{largest} is the largest part ({shown.parts[largest].cells[1]})."
    about = About(name, f"Where the time goes: {label}", words, f"{names.ANALYSIS}: series, {label}")
    return _stacked(about, {label: shown}, {label: largest})


def _stacked(about: About, sides: Mapping[str, Breakdown], largest: Mapping[str, str]) -> Chart:
    import altair as alt

    longest = max(shown.end_to_end.ms for shown in sides.values())
    segments = [
        row
        for place, (side, shown) in enumerate(sides.items())
        for row in _segments(place, side, shown, largest[side], longest)
    ]
    rows: list[Row] = [
        {
            "_row": place,
            "_label": f"{side}: {shown.end_to_end.cells[0]} ms; largest: {largest[side]}, "
            f"{shown.parts[largest[side]].cells[1]}",
        }
        for place, (side, shown) in enumerate(sides.items())
    ]
    last = list(largest.values())[-1]
    path: list[Row] = [
        {"_y": row["_top"] if place else row["_bottom"], "_start": row["_start"], "_end": row["_end"]}
        for place, row in enumerate(row for row in segments if row["category"] == last)
    ]
    x, y = across("ms per inference, with the tracer on"), down(len(rows))
    base = alt.Chart(alt.NamedData(name="segments"))
    layers: list[altair.Chart] = [
        base.mark_bar().encode(
            **box(x, y, "_start", "_end"),
            color=category_colour(str(row["category"]) for row in segments if row["_end"] != row["_start"]),
            tooltip=tooltips(side="side:N", category="category:N", ms="ms", share="%"),
        ),
        # The largest is underlined, so that it is told without colours.
        base.transform_filter("datum.largest")
        .mark_rule(strokeWidth=3)
        .encode(x=x("_start"), x2=alt.X2("_end"), y=y("_bottom")),
        base.mark_text(clip=True).encode(
            x=x("_middle"), y=y("_centre"), text=alt.Text("_text:N"), color=alt.Color("_ink:N", scale=None)
        ),
        row_labels(y),
    ]
    if len(path) > 1:
        followed = alt.Chart(alt.NamedData(name="path")).mark_area(
            orient="horizontal", opacity=0.28, color=PARTS[last]
        )
        layers.insert(0, followed.encode(x=x("_start"), x2=alt.X2("_end"), y=y("_y")))
    spoken = " ".join(_spoken(side, shown) for side, shown in sides.items())
    drawn = alt.layer(*layers, height=_STACK * len(rows))
    about = replace(about, summary=f"{about.summary} {spoken}")
    return make_chart(about, drawn, {"rows": rows, "segments": segments, "path": path})


def _segments(place: int, side: str, shown: Breakdown, largest: str, longest: float) -> Iterator[Row]:
    start = 0.0
    for part, found in shown.parts.items():
        ms, share = found.cells
        end = start + max(0.0, found.ms)
        filled = (end - start) / longest if longest > 0 else 0.0
        yield {
            "side": side,
            "category": part,
            "ms": float(ms),
            "share": float(share.rstrip("%")),
            "_start": round(start, 6),
            "_end": round(end, 6),
            "_middle": round((start + end) / 2, 6),
            "_top": place + 0.32,
            "_bottom": place + 0.86,
            "_centre": place + 0.59,
            "largest": part == largest,
            "_text": f"{part} {share}" if filled >= _NAMED else share if filled >= _LABELLED else "",
            "_ink": ink_on(PARTS[part]),
        }
        start = end


def _spoken(side: str, shown: Breakdown) -> str:
    parts = ", ".join(f"{part} {found.cells[0]} ms ({found.cells[1]})" for part, found in shown.parts.items())
    return f"{side}, {shown.end_to_end.cells[0]} ms with the tracer on: {parts}."


def work_by_category(series: SeriesAnalysis, name: str) -> Chart | None:
    """For runs without time: which part of the arithmetic and of the data each category has."""
    import altair as alt

    known = [operator for operator in series.operators if operator.source.flops is not None]
    flops = sum(operator.source.flops or 0 for operator in known)
    moved = sum(operator.source.bytes_moved or 0 for operator in known)
    if not flops or not moved:
        return None
    rows: list[Row] = []
    bars: list[Row] = []
    for category in Category:
        members = [operator for operator in known if operator.category is category]
        if not members:
            continue
        work = sum(operator.source.flops or 0 for operator in members)
        data = sum(operator.source.bytes_moved or 0 for operator in members)
        place = len(rows)
        said = f"{plural(len(members), 'operator')}, {work / 1e6:.1f} million operations, {size(float(data))}"
        rows.append({"_row": place, "_label": f"{category.value}: {said}"})
        bars += work_bars(place, {"category": category.value}, work / flops, data / moved)
    title = "% of all arithmetic (upper bar), of all data (lower bar)"
    x, y = across(title, alt.Scale(domain=[0, 100])), down(len(rows))
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="bars"))
        .mark_bar()
        .encode(
            **box(x, y, "_zero", "percent"),
            color=alt.Color(
                "category:N", scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values())), legend=None
            ),
            fillOpacity=alt.FillOpacity("_strength:Q", scale=None),
            tooltip=tooltips(category="category:N", what="of:N", percent="%"),
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    said = "; ".join(str(row["_label"]) for row in rows)
    title = f"Where the work is: {named(series.name)}"
    return make_chart(About(name, title, f"{said}.", names.GRAPH), drawn, {"rows": rows, "bars": bars})
