"""Where the time goes, stacked: before and after side by side, so that the shift is seen."""

from __future__ import annotations

from model_profiling.analysis.pairing import Pairing
from model_profiling.report.breakdown import Breakdown, break_down
from model_profiling.report.charts.drawing import PARTS, make_chart
from model_profiling.report.document import Chart
from model_profiling.run import names


def category_shift(pairing: Pairing, name: str, summary: str) -> Chart:
    """Milliseconds of each part before and after."""
    import altair as alt

    sides = (("before", break_down(pairing.baseline)), ("after", break_down(pairing.candidate)))
    rows = [row for side, shown in sides for row in _rows(side, shown)]
    drawn = (
        alt.Chart(alt.InlineData(values=rows), height=120)
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="milliseconds per inference, with the tracer on"),
            y=alt.Y("side:N", sort=["before", "after"], title=None),
            color=alt.Color(
                "part:N", scale=alt.Scale(domain=list(PARTS), range=list(PARTS.values())), title=None
            ),
            order="place:Q",
            tooltip=["side:N", "part:N", "ms:Q", "share:Q"],
        )
    )
    return make_chart(name, f"Where the time goes: {pairing.label}", summary, drawn, names.ANALYSIS)


def _rows(side: str, shown: Breakdown) -> list[dict[str, object]]:
    return [
        {"side": side, "part": part, "ms": found.ms, "share": found.percent, "place": place}
        for place, (part, found) in enumerate(shown.parts.items())
    ]
