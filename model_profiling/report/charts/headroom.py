"""What SME2 could bring, drawn as what it is: a striped outline below the solid bar of a measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from model_profiling.analysis.headroom import Projection
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
)
from model_profiling.report.document import Chart
from model_profiling.run import names
from model_profiling.wording import milliseconds

_STRIPES = 48
_SHOWN = 4


def headroom_chart(projections: Sequence[Projection]) -> Chart | None:
    """For every series the latency that was measured, and below it the range of the projection."""
    import altair as alt

    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None][:_SHOWN]
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
