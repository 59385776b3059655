"""Several runs in one picture: what each takes end to end, and where its time goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.report.breakdown import Breakdown
from model_profiling.report.charts.drawing import PARTS, About, Row, make_chart
from model_profiling.report.document import Chart
from model_profiling.run import names
from model_profiling.statistics.latency import LatencySummary
from model_profiling.wording import milliseconds

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
