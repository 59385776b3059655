"""Turns of two programs beside the ratio of the two, so that the machine's noise is seen to cancel."""

from __future__ import annotations

import numpy as np

from model_profiling.errors import FormatError
from model_profiling.report.charts.drawing import (
    AFTER,
    BEFORE,
    About,
    Row,
    across,
    make_chart,
    named,
    thinned,
    tooltips,
)
from model_profiling.report.data import PairReport
from model_profiling.report.document import Chart
from model_profiling.run import Run, names
from model_profiling.run.latencies import shared_launches, timed, way_of
from model_profiling.statistics.lockstep import paired_cycles
from model_profiling.wording import plural

_MOST = 240
_LINES = {"before": BEFORE, "after": AFTER, "ratio": "#b5532f"}
_LEAST_RANGE = 2.0


def turns_chart(run: Run, pair: PairReport, name: str) -> Chart | None:
    """How far each turn of either side, and their ratio, lies from its own median; None unless they took
    turns and got their answer from that."""
    import altair as alt

    found = pair.speedup
    if pair.with_tracer or found.ratio is None or found.unit != "launch":
        return None
    try:
        journal = run.journal
    except FormatError:  # which is among the report's warnings
        return None
    if journal is None:
        return None
    sides = timed(journal, pair.pair.baseline), timed(journal, pair.pair.candidate)
    if way_of(*sides, same_run=True) != "lockstep":
        return None
    cycles = paired_cycles(*shared_launches(sides[0].launches, sides[1].launches))
    if not cycles or any((launch <= 0).any() for launch in cycles):
        return None
    whole = np.concatenate(cycles)
    launches = np.repeat(np.arange(1, len(cycles) + 1), [len(launch) for launch in cycles])
    values = {"before": whole[:, 0], "after": whole[:, 1], "ratio": whole[:, 0] / whole[:, 1]}
    away = {what: 100 * (each / np.median(each) - 1) for what, each in values.items()}
    spread = {what: np.percentile(each, [5, 95]) for what, each in away.items()}
    edge = max(_LEAST_RANGE, *(2 * float(np.abs(edges).max()) for edges in spread.values()))
    rows: list[Row] = [
        {
            "turn": at + 1,
            "launch": int(launches[at]),
            "what": what,
            "_at": round(float(np.clip(each[at], -edge, edge)), 3),
            "percent": round(float(each[at]), 3),
            "value": round(float(values[what][at]), 5),
        }
        for what, each in away.items()
        for at in thinned(range(len(whole)), _MOST)
    ]
    middle = float(np.median(values["ratio"]))
    medians = [float(np.median(launch[:, 0] / launch[:, 1])) for launch in cycles]
    ends = np.cumsum([len(launch) for launch in cycles])
    counted: list[Row] = [
        {
            "launch": number,
            "from": int(end) - len(launch) + 1,
            "to": int(end),
            "ratio": round(ratio, 5),
            "percent": round(100 * (ratio / middle - 1), 3),
            "_at": round(float(np.clip(100 * (ratio / middle - 1), -edge, edge)), 3),
        }
        for number, (launch, end, ratio) in enumerate(zip(cycles, ends, medians, strict=True), start=1)
    ]
    lines = list(_LINES)
    legend = alt.Legend(orient="top", columns=3, title=None, symbolStrokeWidth=3)
    some = f"; {_MOST} of {len(whole):,} shown" if len(whole) > _MOST else ""
    scale = alt.Scale(domain=[1, max(2, len(whole))], nice=False, zero=False)
    bars = "bar: a launch's median ratio, which counts"
    x = across(
        [f"turn, {plural(len(cycles), 'launch')} one after another{some}", bars],
        scale,
        alt.Axis(grid=False, tickCount=6),
    )
    vertical = alt.Scale(domain=[-edge, edge], nice=False)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="% from its own median", scale=vertical)

    base = alt.Chart(alt.NamedData(name="rows")).encode(
        x=x("turn"),
        y=y("_at"),
        color=alt.Color("what:N", scale=alt.Scale(domain=lines, range=list(_LINES.values())), legend=legend),
        strokeDash=alt.StrokeDash(
            "what:N", scale=alt.Scale(domain=lines, range=[[1, 0], [4, 2], [1, 0]]), legend=legend
        ),
        detail=alt.Detail("launch:N"),
        tooltip=tooltips(
            what="what:N", launch="launch", turn="turn", value="ms, or ratio", percent="% from its median"
        ),
    )
    drawn = alt.layer(
        base.transform_filter("datum.what !== 'ratio'").mark_line(strokeWidth=1.1, clip=True),
        base.transform_filter("datum.what === 'ratio'").mark_line(strokeWidth=1.8, clip=True),
        alt.Chart(alt.NamedData(name="launches"))
        .mark_rule(strokeWidth=4, clip=True)
        .encode(
            x=x("from"),
            x2=alt.X2("to"),
            y=y("_at"),
            tooltip=tooltips(launch="launch", ratio="median ratio", percent="% from the median of all"),
        ),
        height=240,
    )
    before, after, ratio = (float(edges[1] - edges[0]) for edges in spread.values())
    summary = (
        f"Over {plural(len(whole), 'turn')} in {plural(len(cycles), 'launch')} nine in ten times before lie "
        f"within {before:.1f}% of each other, times after within {after:.1f}%, their ratios within "
        f"{ratio:.1f}%. Of each launch the median of its ratios counts: {min(medians):.3f}x to "
        f"{max(medians):.3f}x, together {found.ratio:.3f}x."
    )
    title = f"Turn by turn, {named(pair.label)}: either side, and the ratio of the two"
    data = {"rows": rows, "launches": counted}
    return make_chart(About(name, title, summary, f"{names.JOURNAL}: turns_ns"), drawn, data)
