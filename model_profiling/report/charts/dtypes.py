"""Number formats of one model side by side: latency, with the projection below it where there is one; where
none was measured, arithmetic and data.
"""

from __future__ import annotations

from model_profiling.report.charts.drawing import (
    BEFORE,
    ROW,
    About,
    Row,
    across,
    box,
    down,
    make_chart,
    named,
    row_labels,
    series_colour,
    tooltips,
    work_bars,
)
from model_profiling.report.document import Chart
from model_profiling.report.dtypes import Dtypes
from model_profiling.run import names
from model_profiling.wording import milliseconds, size

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
