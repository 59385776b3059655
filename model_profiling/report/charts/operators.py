"""Charts of operators: the longest, and what SME2 could bring to those it runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from model_profiling.analysis.headroom import Projection
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.report.breakdown import break_down
from model_profiling.report.cells import change_cells
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
    return Chart(name, title, f"{'; '.join(said)}.", spec, f"{names.ANALYSIS}: pairs, {label}, operators")


def longest_operators(series: SeriesAnalysis, longest: Sequence[Operator], name: str) -> Chart | None:
    shown = break_down(series)
    bars = []
    for operator in [each for each in longest if each.typical_ms > 0][:_SHOWN]:
        ms, share = shown.of([operator]).cells
        bars.append((operator, f"{ms} ms ({share})", float(ms)))
    title = titled(f"The {len(bars)} longest operators", series.label)
    return _bars(
        name, title, f"{names.ANALYSIS}: series, {named(series.name)}", bars, "ms in a typical traced run"
    )


def arithmetic_of_operators(operators: Sequence[tuple[Operator, str]], whose: str, name: str) -> Chart | None:
    """For runs without times: the operators with most arithmetic, and what their kernels became."""
    bars = []
    for operator, became in [each for each in operators if each[0].source.flops][:_SHOWN]:
        millions = f"{(operator.source.flops or 0) / 1e6:.1f}"
        kernel = f", {named(became)}" if became else ""
        bars.append((operator, f"{millions} million{kernel}", float(millions)))
    title = titled(f"The {len(bars)} operators with most arithmetic", whose)
    return _bars(name, title, names.GRAPH, bars, "million operations; no time was measured")


def _bars(
    name: str, title: str, source: str, bars: Sequence[tuple[Operator, str, float]], unit: str
) -> Chart | None:
    if not bars:
        return None
    rows: list[Row] = [
        {
            **band(place, 0.48, 0.9),
            **_operator(operator),
            "_label": f"{text}: {_layer_first(operator)}",
            "value": value,
        }
        for place, (operator, text, value) in enumerate(bars)
    ]
    tip = {**_TIP, "value": unit}
    layers = [layer("rows", "bar", x="_zero", x2="value", **BOX, color=category_colours(rows), tip=tip)]
    said = "; ".join(f"{_layer_first(each)} ({each.category.value}): {text}" for each, text, _ in bars)
    return Chart(name, title, f"{said}.", labelled({"rows": rows}, layers, axis(unit)), source)


_STRIPES = 48
_MOST_PROJECTIONS = 4


def headroom_chart(projections: Sequence[Projection], every: Collection[Series]) -> Chart | None:
    """For every series the measured latency and, striped below it, the projected range."""
    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None]
    known = known[:_MOST_PROJECTIONS]
    if not known:
        return None
    step = max(max(ms, found.ms(found.low) or 0.0) for found, ms in known) / _STRIPES
    rows: list[Row] = []
    measured: list[Row] = []
    projected: list[Row] = []
    stripes: list[Row] = []
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
        bar = band(place + 1, 0.46, 0.94)
        projected.append(
            {
                **bar,
                "series": name,
                "from": round(short, 5),
                "to": round(long, 5),
                "least": round(latency / found.ceiling, 5) if math.isfinite(found.ceiling) else 0,
            }
        )
        stripes += [{"_at": round(step * (number + 0.5), 5), **bar} for number in range(int(long / step))]
        said.append(
            f"{name}: {milliseconds(latency)} ms measured; projected, not measured: {ends} with SME2, "
            f"{found.low:.2f}x to {found.high:.2f}x as fast"
        )
    tip = {"series": "series", "ms": "measured ms"}
    ahead = {"series": "series", "from": "projected, from ms", "to": "to ms", "least": "limit, ms"}
    layers = [
        layer("measured", "bar", x="_zero", x2="ms", **BOX, tip=tip, color=series_colour(0)),
        layer("stripes", "rule", x="_at", **BOX, strokeWidth=1, opacity=0.35),
        *projection(ahead),
    ]
    data = {"rows": rows, "measured": measured, "projected": projected, "stripes": stripes}
    spec = labelled(data, layers, axis("ms; striped and dashed: projection, shaded: its range"))
    title = "What SME2 could bring: a projection, not a measurement"
    return Chart("headroom", title, f"{'; '.join(said)}.", spec, f"{names.ANALYSIS}: sme2_headroom")
