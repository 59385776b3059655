"""Charts of operators: the longest, and what SME2 could bring to those it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from model_profiling.analysis.coverage import Projection
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.report.breakdown import break_down, change_cells
from model_profiling.report.charts import (
    BEFORE,
    BOX,
    Layer,
    Row,
    axis,
    band,
    category_colours,
    labelled,
    layer,
    named,
    projection,
    series_colour,
    titled,
)
from model_profiling.report.document import Chart

_SHOWN = 10
_TIP = {"operator": "operator", "category": "category", "module": "module"}


def _operator(operator: Operator) -> Row:
    return {
        "operator": named(operator.name),
        "category": operator.category.value,
        "module": named(operator.place),
    }


def _layer_first(operator: Operator) -> str:
    """Operators of one name differ in their layer."""
    return f"{named(operator.place)}, {named(operator.name)}"


def operators_before_after(pairing: Pairing, ordered: Sequence[OperatorPair], name: str) -> Chart | None:
    """The first of `ordered`: hollow the baseline, filled the candidate, coloured by category."""
    first, second = map(named, pairing.sides)
    before, after = break_down(pairing.baseline), break_down(pairing.candidate)
    shown = [found for found in ordered if found.baseline_ms > 0 or found.candidate_ms > 0][:_SHOWN]
    if not shown:
        return None
    rows: list[Row] = []
    said: list[str] = []
    for place, found in enumerate(shown):
        was = before.of(found.baseline).cells[0] if found.baseline else None
        now = after.of(found.candidate).cells[0] if found.candidate else None
        _, ratio = change_cells(was or MISSING, now or MISSING, found.ratio, found.speedup)
        gain = f", {ratio}" if ratio != MISSING else ""
        times = f"{was or 'none'} \u2192 {now or 'none'} ms{gain}"
        said.append(f"{_layer_first(found.main)} ({found.category.value}): {times}")
        rows.append(
            {
                **band(place, 0.4, 1.0),
                **_operator(found.main),
                "category": found.category.value,
                "_label": f"{times}: {_layer_first(found.main)}",
                "before": float(was) if was else None,
                "after": float(now) if now else None,
                "change": found.change,
            }
        )
    tip = {**_TIP, "before": f"{first} ms", "after": f"{second} ms", "change": "change"}
    point: Layer = {"y": "_middle", "color": category_colours(rows), "tip": tip, "size": 90, "opacity": 1}
    both = "isValid(datum.before) && isValid(datum.after)"
    layers = [
        layer("rows", "rule", where=both, x="before", x2="after", y="_middle", strokeWidth=2, color=BEFORE),
        layer("rows", "point", x="before", filled=False, strokeWidth=2, **point),
        layer("rows", "point", x="after", filled=True, **point),
    ]
    x = axis(f"ms in a typical traced run; hollow: {first}, filled: {second}", {"domainMin": 0})
    label = named(pairing.label)
    title = f"The {len(rows)} longest operators, {first} and {second}: {label}"
    spec = labelled({"rows": rows}, layers, x)
    return Chart(name, title, f"{'; '.join(said)}.", spec, names.ANALYSIS)


def longest_operators(series: SeriesAnalysis, longest: Sequence[Operator], name: str) -> Chart | None:
    shown = break_down(series)
    bars = [(each, *shown.of([each]).cells) for each in longest if each.typical_ms > 0][:_SHOWN]
    if not bars:
        return None
    rows: list[Row] = [
        {
            **band(place, 0.48, 0.9),
            **_operator(operator),
            "_label": f"{ms} ms ({share}): {_layer_first(operator)}",
            "value": float(ms),
        }
        for place, (operator, ms, share) in enumerate(bars)
    ]
    unit = "ms in a typical traced run"
    tip = {**_TIP, "value": unit}
    layers = [layer("rows", "bar", x="_zero", x2="value", **BOX, color=category_colours(rows), tip=tip)]
    said = "; ".join(
        f"{_layer_first(each)} ({each.category.value}): {ms} ms ({share})" for each, ms, share in bars
    )
    title = titled(f"The {len(bars)} longest operators", series.label)
    spec = labelled({"rows": rows}, layers, axis(unit))
    return Chart(name, title, f"{said}.", spec, names.ANALYSIS)


_MOST_PROJECTIONS = 4


def headroom_chart(projections: Sequence[Projection], every: Collection[Series]) -> Chart | None:
    """For every series the measured latency and, dashed below it, the projected range."""
    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None]
    known = known[:_MOST_PROJECTIONS]
    if not known:
        return None
    rows: list[Row] = []
    measured: list[Row] = []
    projected: list[Row] = []
    said: list[str] = []
    for found, latency in known:
        name, place = named(found.series.spoken(every)), len(rows)
        # The highest factors give the shortest time.
        short, long = (found.ms(factor) or 0.0 for factor in (found.high, found.low))
        ends = f"{milliseconds(short)} to {milliseconds(long)} ms"
        rows += [
            {"_row": place, "_label": f"{name}: {milliseconds(latency)} ms, measured"},
            {"_row": place + 1, "_label": f"PROJECTION with SME2, not measured: {ends}"},
        ]
        measured.append({**band(place, 0.46, 0.94), "series": name, "ms": round(latency, 5)})
        projected.append(
            {
                **band(place + 1, 0.46, 0.94),
                "series": name,
                "from": round(short, 5),
                "to": round(long, 5),
                "least": round(latency / found.ceiling, 5) if math.isfinite(found.ceiling) else 0,
            }
        )
        said.append(
            f"{name}: {milliseconds(latency)} ms measured; projected, not measured: {ends} with SME2, "
            f"{found.low:.2f}x to {found.high:.2f}x as fast"
        )
    tip = {"series": "series", "ms": "measured ms"}
    ahead = {"series": "series", "from": "projected, from ms", "to": "to ms", "least": "limit, ms"}
    layers = [
        layer("measured", "bar", x="_zero", x2="ms", **BOX, tip=tip, color=series_colour(0)),
        *projection(ahead),
    ]
    data = {"rows": rows, "measured": measured, "projected": projected}
    spec = labelled(data, layers, axis("ms; dashed: projection, shaded: its range"))
    title = "What SME2 could bring: a projection, not a measurement"
    return Chart("headroom", title, f"{'; '.join(said)}.", spec, names.ANALYSIS)
