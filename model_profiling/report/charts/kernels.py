"""Kernels that ran, by how often they were called, for each series that counted them."""

from __future__ import annotations

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.analysis.kernel_names import Kernel
from model_profiling.report.charts.drawing import (
    About,
    Row,
    across,
    box,
    colours,
    down,
    make_chart,
    named,
    row_labels,
    series_legend,
    tooltips,
)
from model_profiling.report.document import Chart
from model_profiling.wording import plural

_SHOWN = 8
_MOST_SERIES = 4
_LABEL, _BAR = 26, 15


def kernels_chart(place: PlaceEvidence, name: str, source: str) -> Chart | None:
    """The kernels called most; a bar for each series, so that what one of them lacks is seen."""
    import altair as alt

    counted = [found for found in place.kernels if found.counted][:_MOST_SERIES]
    series = [named(str(found.series)) for found in counted]
    calls: dict[Kernel, dict[str, int]] = {}
    for label, found in zip(series, counted, strict=True):
        for use in found.uses:
            if use.calls and use.evidence == "executed" and use.kernel.library != "operator":
                calls.setdefault(use.kernel, {})[label] = use.calls
    if not calls:
        return None
    most = sorted(calls, key=lambda kernel: -max(calls[kernel].values()))[:_SHOWN]
    height = _LABEL + _BAR * len(series)
    rows: list[Row] = []
    bars: list[Row] = []
    said: list[str] = []
    for row, kernel in enumerate(most):
        rows.append({"_row": row, "_label": f"{kernel.isa}: {named(kernel.name)}"})
        counts = [calls[kernel].get(label, 0) for label in series]
        spoken = ", ".join(
            f"{plural(count, 'call')} in {label}" for count, label in zip(counts, series, strict=True)
        )
        said.append(f"{named(kernel.name)} ({kernel.isa}): {spoken}")
        for lane, (label, count) in enumerate(zip(series, counts, strict=True)):
            top = (_LABEL - 4 + _BAR * lane) / height
            bars.append(
                {
                    "kernel": named(kernel.name),
                    "series": label,
                    "_zero": 0,
                    "calls": count,
                    "_top": round(row + top, 4),
                    "_bottom": round(row + top + (_BAR - 3) / height, 4),
                    "_middle": round(row + top + (_BAR - 3) / height / 2, 4),
                    "_text": f"{count:,}",
                }
            )
    painted = colours(series)
    longest = max(max(calls[kernel].values()) for kernel in most)
    scale = alt.Scale(domain=[0, longest * 1.15], nice=False)
    x, y = across("calls", scale, alt.Axis(format=",d", tickCount=5)), down(len(rows))
    base = alt.Chart(alt.NamedData(name="bars"))
    drawn = alt.layer(
        base.mark_bar().encode(
            **box(x, y, "_zero", "calls"),
            color=alt.Color(
                "series:N",
                scale=alt.Scale(domain=list(painted), range=list(painted.values())),
                legend=series_legend("bars, from top to bottom" if len(series) > 1 else None),
            ),
            tooltip=tooltips(kernel="kernel:N", series="series:N", calls="calls"),
        ),
        base.mark_text(align="left", dx=4, fontSize=10).encode(
            x=x("calls"), y=y("_middle"), text=alt.Text("_text:N")
        ),
        row_labels(y),
        height=height * len(rows),
    )
    title = f"Kernels that ran{' under emulation' if place.emulated else ''}, by calls"
    return make_chart(About(name, title, f"{'; '.join(said)}.", source), drawn, {"rows": rows, "bars": bars})
