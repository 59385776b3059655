"""Where the time goes, as pictures: of one run, of several, of number formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from model_profiling.analysis.categories import Category
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import milliseconds, plural, size
from model_profiling.report.breakdown import Breakdown, break_down
from model_profiling.report.charts.drawing import (
    BEFORE,
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
    series_colour,
    tooltips,
    work_bars,
)
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import largest_parts
from model_profiling.run import names
from model_profiling.statistics.latency import LatencySummary

if TYPE_CHECKING:
    import altair

    from model_profiling.report.dtypes import Dtypes


# Where the time goes, stacked: before and after one above the other, so that the shift is seen; where times
# mean nothing, where the work is.

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


# Several runs in one picture: what each takes end to end, and where its time goes.

_SWITCHES = {"on": "#e07b1f", "off": "#3b7dd8"}
_OTHER = "#8a8f98"
_STEP = 22
_TOLD = 8
"""How many bars are told in words before only the ends are."""


@dataclass(frozen=True, slots=True)
class LatencyBar:
    """One series of one run."""

    label: str
    sme2: str
    """`on`, `off`, or what else there is to say of the switch."""
    latency: LatencySummary


@dataclass(frozen=True, slots=True)
class PartsBar:
    """One series of one run, cut into its parts."""

    label: str
    shown: Breakdown


def latency_bars(bars: Sequence[LatencyBar]) -> Chart:
    """Medians as bars, nine in ten inferences as a line across each."""
    import altair as alt

    rows: list[Row] = [
        {
            "run": bar.label,
            "SME2": bar.sme2,
            "ms": round(bar.latency.median, 6),
            "low": round(bar.latency.p5, 6),
            "high": round(bar.latency.p95, 6),
        }
        for bar in bars
    ]
    kinds = list(dict.fromkeys(bar.sme2 for bar in bars))
    colours = alt.Scale(domain=kinds, range=[_SWITCHES.get(kind, _OTHER) for kind in kinds])
    place = alt.Y("run:N", sort=None, title=None, axis=alt.Axis(labelLimit=320))
    drawn = alt.LayerChart(
        data=alt.NamedData(name="rows"),
        height={"step": _STEP},
        layer=[
            alt.Chart()
            .mark_bar()
            .encode(
                x=alt.X("ms:Q", title="milliseconds per inference, without the tracer"),
                y=place,
                color=alt.Color("SME2:N", scale=colours, title="SME2"),
                tooltip=["run:N", "SME2:N", "ms:Q", "low:Q", "high:Q"],
            ),
            alt.Chart().mark_rule().encode(x="low:Q", x2="high:Q", y=place),
        ],
    )
    told = [f"{bar.label}: {milliseconds(bar.latency.median)} ms" for bar in bars]
    if len(bars) > _TOLD:
        ends = [pick(bars, key=lambda bar: bar.latency.median) for pick in (min, max)]
        told = [f"{bar.label}: {milliseconds(bar.latency.median)} ms" for bar in ends]
        told[0], told[1] = f"From {told[0]}", f"to {told[1]}"
    summary = f"Median, and the range of nine in ten. {'; '.join(told)}."
    about = About("latency", "End-to-end latency", summary, f"{names.METRICS} of each run")
    return make_chart(about, drawn, {"rows": rows})


def parts_bars(bars: Sequence[PartsBar], *, shares: bool) -> Chart:
    """Each bar cut into categories and overheads, in milliseconds or as shares of its own whole."""
    import altair as alt

    rows: list[Row] = [
        {"run": bar.label, "part": part, "ms": found.ms, "share": found.percent, "place": place}
        for bar in bars
        for place, (part, found) in enumerate(bar.shown.parts.items())
    ]
    title = "percent of the run's own time" if shares else "milliseconds per inference, with the tracer on"
    drawn = (
        alt.Chart(alt.NamedData(name="rows"), height={"step": _STEP})
        .mark_bar()
        .encode(
            x=alt.X("share:Q" if shares else "ms:Q", title=title),
            y=alt.Y("run:N", sort=None, title=None, axis=alt.Axis(labelLimit=320)),
            color=alt.Color(
                "part:N", scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values())), title=None
            ),
            order="place:Q",
            tooltip=["run:N", "part:N", "ms:Q", "share:Q"],
        )
    )
    largest = [(bar.label, *max(bar.shown.parts.items(), key=lambda part: part[1].percent)) for bar in bars]
    told = "; ".join(f"{label}: {part}, {found.percent:.1f}%" for label, part, found in largest[:_TOLD])
    more = f"; and {len(bars) - _TOLD} more" if len(bars) > _TOLD else ""
    name, heading = ("shares", "Shares of the time") if shares else ("categories", "Where the time goes")
    summary = f"The largest part of each. {told}{more}."
    return make_chart(About(name, heading, summary, f"{names.ANALYSIS} of each run"), drawn, {"rows": rows})


# Number formats of one model side by side: latency, with the projection below it where there is one; where
# none was measured, arithmetic and data.

_TALL_ROW = 60


def dtypes_chart(found: Dtypes) -> Chart | None:
    return _latencies(found) or _work(found)


def _latencies(found: Dtypes) -> Chart | None:
    import altair as alt

    measured = [(side, side.latency) for side in found.worked if side.latency]
    if not measured:
        return None
    rows: list[Row] = []
    projected: list[Row] = []
    for place, (side, latency) in enumerate(measured):
        label = f"{side.dtype}: {milliseconds(latency.median_ms)} ms"
        if ahead := side.projected:
            span = f"{milliseconds(ahead.low_ms)} to {milliseconds(ahead.high_ms)} ms"
            label += f"; with SME2, PROJECTED: {span}"
            projected.append(
                {
                    "dtype": side.dtype,
                    "_zero": 0,
                    "from": round(ahead.low_ms, 5),
                    "to": round(ahead.high_ms, 5),
                    "_top": place + 0.7,
                    "_bottom": place + 0.94,
                }
            )
        rows.append(
            {
                "_row": place,
                "_label": label,
                "dtype": side.dtype,
                "_zero": 0,
                "median": round(latency.median_ms, 5),
                "p5": round(latency.p5_ms, 5),
                "p95": round(latency.p95_ms, 5),
                "_top": place + 0.38,
                "_bottom": place + 0.64,
                "_middle": place + 0.51,
            }
        )
    note = "dashed: projection, not measured" if projected else ""
    x, y = across(["ms; line: nine in ten", *([note] if note else [])]), down(len(rows))
    base, ahead_of = alt.Chart(alt.NamedData(name="rows")), alt.Chart(alt.NamedData(name="projected"))
    drawn = alt.layer(
        base.mark_bar(color=series_colour(0)).encode(
            **box(x, y, "_zero", "median"),
            tooltip=tooltips(dtype="dtype:N", median="median ms", p5="5% ms", p95="95% ms"),
        ),
        base.mark_rule(strokeWidth=2).encode(x=x("p5"), x2=alt.X2("p95"), y=y("_middle")),
        ahead_of.mark_bar(opacity=0.4, color=BEFORE).encode(**box(x, y, "from", "to")),
        ahead_of.mark_bar(fillOpacity=0, strokeDash=[5, 3], stroke=BEFORE, strokeWidth=1.5).encode(
            **box(x, y, "_zero", "to"),
            tooltip=tooltips(**{"dtype": "dtype:N", "from": "projected, from ms", "to": "to ms"}),
        ),
        row_labels(y),
        height=_TALL_ROW * len(rows),
    )
    said = "; ".join(str(row["_label"]) for row in rows)
    doubt = "" if found.judged_by_time else " These latencies say nothing about Arm."
    title = (
        f"Latency of {named(found.model)} by number format{f', on {named(found.cpu)}' if found.cpu else ''}"
    )
    data = {"rows": rows, "projected": projected}
    return make_chart(About("dtypes", title, f"{said}.{doubt}", names.DTYPES), drawn, data)


def _work(found: Dtypes) -> Chart | None:
    import altair as alt

    sides = [(side, side.work) for side in found.worked if side.work]
    flops = max((work.flops for _, work in sides), default=0)
    moved = max((work.bytes_moved for _, work in sides), default=0)
    if not flops or not moved:
        return None
    rows: list[Row] = []
    bars: list[Row] = []
    for place, (side, work) in enumerate(sides):
        said = f"{work.flops / 1e6:,.1f} million operations, {size(work.bytes_moved)} moved"
        rows.append({"_row": place, "_label": f"{side.dtype}: {said}"})
        bars += work_bars(place, {"dtype": side.dtype}, work.flops / flops, work.bytes_moved / moved)
    title = ["% of the most: arithmetic (upper bar), data (lower bar)", "no time was measured"]
    x, y = across(title, alt.Scale(domain=[0, 100])), down(len(rows))
    drawn = alt.layer(
        alt.Chart(alt.NamedData(name="bars"))
        .mark_bar(color=series_colour(0))
        .encode(
            **box(x, y, "_zero", "percent"),
            fillOpacity=alt.FillOpacity("_strength:Q", scale=None),
            tooltip=tooltips(dtype="dtype:N", what="of:N", percent="% of the most"),
        ),
        row_labels(y),
        height=ROW * len(rows),
    )
    said = "; ".join(str(row["_label"]) for row in rows)
    name = f"Work of {named(found.model)} by number format"
    about = About("dtypes", name, f"{said}. No latency was measured.", names.DTYPES)
    return make_chart(about, drawn, {"rows": rows, "bars": bars})
