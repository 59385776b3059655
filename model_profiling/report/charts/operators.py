"""Operators as pictures: what became of the longest, which take longest, which have most arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
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
    tooltips,
)
from model_profiling.report.document import Chart
from model_profiling.run import names
from model_profiling.wording import speedup

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
