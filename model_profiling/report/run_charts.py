"""A run's charts: where the time goes, operators, latency, the ladder of CPU features, the projection."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from model_profiling.analysis.coverage import Projection
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.report import charts as draw
from model_profiling.report.breakdown import ShownTimes, break_down, change_cells, largest_parts
from model_profiling.report.charts import Channel, Row, band, layer, named, titled
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import Chart
from model_profiling.statistics.measure import LatencySummary

# Where the time goes, as stacked bars of one side, two, or several runs.

_STACK = 76
_NAMED, _LABELLED = 0.34, 0.1
"""The share of the axis that a segment must fill to hold its name, or its share alone, on a phone."""


def category_shift(pairing: Pairing, name: str) -> Chart:
    """The share of each part on both sides, of the longer one."""
    first, second = map(named, pairing.sides)
    before, after = largest_parts(pairing)
    title = f"the bottleneck moves from {before.name} to {after.name}"
    if before.name == after.name:
        title = f"{after.name} stays the largest part"
    sides = {first: break_down(pairing.baseline), second: break_down(pairing.candidate)}
    return stacked(sides, name, f"Where the time goes, {named(pairing.label)}: {title}")


def categories_of(series: SeriesAnalysis, name: str) -> Chart:
    label = named(series.label or "One inference")
    return stacked({label: break_down(series)}, name, titled("Where the time goes", series.label))


def stacked(sides: Mapping[str, ShownTimes], name: str, title: str) -> Chart:
    whole = {side: sum(max(0.0, part.ms) for part in shown.parts.values()) for side, shown in sides.items()}
    slower = max(whole, key=lambda side: whole[side])
    segments: list[Row] = []
    rows: list[Row] = []
    for place, (side, shown) in enumerate(sides.items()):
        largest = max(shown.parts, key=lambda part: shown.parts[part].percent)
        segments += _segments(place, side, shown, largest, whole[slower])
        most = shown.parts[largest].cells[1]
        rows.append({"_row": place, "_label": f"{side}; largest: {largest}, {most}"})
    colour = draw.category_colours(row for row in segments if row["_end"] != row["_start"])
    tip = {"side": "side", "category": "category", "ms": "ms", "share": "%"}
    ink: Channel = {"field": "_ink", "type": "nominal", "scale": None}
    layers = [
        layer("segments", "bar", x="_start", x2="_end", **draw.BOX, color=colour, tip=tip),
        # The largest part is underlined, so that it is seen without colours.
        layer("segments", "rule", where="datum.largest", x="_start", x2="_end", y="_bottom", strokeWidth=3),
        layer("segments", "text", x="_centre", y="_middle", text="_text", color=ink, clip=True),
    ]
    data = {"rows": rows, "segments": segments}
    # Shares need no second time for one inference beside the answer's, which is without the tracer.
    unit = f"% of an inference{f', {slower}' if len(sides) > 1 else ''}"
    spec = draw.labelled(data, layers, draw.axis(unit), _STACK)
    return Chart(name, title, draw.sentence(rows), spec, names.ANALYSIS)


def _segments(place: int, side: str, shown: ShownTimes, largest: str, longest: float) -> Iterator[Row]:
    start = 0.0
    for part, found in shown.parts.items():
        ms, share = found.cells
        filled = max(0.0, found.ms) / longest if longest > 0 else 0.0
        end = start + 100 * filled
        yield {
            **band(place, 0.32, 0.86),
            "side": side,
            "category": part,
            "ms": float(ms),
            "share": float(share.rstrip("%")),
            "_start": round(start, 6),
            "_end": round(end, 6),
            "_centre": round((start + end) / 2, 6),
            "largest": part == largest,
            "_text": f"{part} {share}" if filled >= _NAMED else share if filled >= _LABELLED else "",
            "_ink": "#ffffff" if part == "GEMM" else "#000000",  # the only colour on which white reads better
        }
        start = end


# The longest operators, before and after or of one series.

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
    for place, found in enumerate(shown):
        was = before.of(found.baseline).cells[0] if found.baseline else None
        now = after.of(found.candidate).cells[0] if found.candidate else None
        _, ratio = change_cells(was or MISSING, now or MISSING, found.ratio, found.speedup)
        gain = f", {ratio}" if ratio != MISSING else ""
        times = f"{was or 'none'} \u2192 {now or 'none'} ms{gain}"
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
    point: draw.Layer = {"y": "_middle", "color": draw.category_colours(rows), "tip": tip, "size": 90}
    both = "isValid(datum.before) && isValid(datum.after)"
    layers = [
        layer(
            "rows", "rule", where=both, x="before", x2="after", y="_middle", strokeWidth=2, color=draw.BEFORE
        ),
        layer("rows", "point", x="before", filled=False, strokeWidth=2, opacity=1, **point),
        layer("rows", "point", x="after", filled=True, opacity=1, **point),
    ]
    x = draw.axis(f"ms in a typical traced run; hollow: {first}, filled: {second}", {"domainMin": 0})
    title = f"The {len(rows)} longest operators, {first} and {second}: {named(pairing.label)}"
    return Chart(name, title, draw.sentence(rows), draw.labelled({"rows": rows}, layers, x), names.ANALYSIS)


def longest_operators(series: SeriesAnalysis, longest: Sequence[Operator], name: str) -> Chart | None:
    shown = break_down(series)
    bars = [(each, *shown.of([each]).cells) for each in longest if each.typical_ms > 0][:_SHOWN]
    if not bars:
        return None
    rows: list[Row] = [
        {
            **_operator(operator),
            "_label": f"{ms} ms ({share}): {_layer_first(operator)}",
            "value": float(ms),
        }
        for operator, ms, share in bars
    ]
    title, unit = titled(f"The {len(bars)} longest operators", series.label), "ms in a typical traced run"
    colour = draw.category_colours(rows)
    return draw.bars(rows, name, title, unit, names.ANALYSIS, colour=colour, tip=_TIP)


# End-to-end latency: every inference of each series.

T = TypeVar("T")
_SAMPLED_ROW = 72
MOST_SAMPLES = 600
"""In one chart: more cannot be told apart, and a page must stay small."""


def thinned(values: Sequence[T], most: int) -> list[T]:
    """At most `most` of the values in even steps, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


@dataclass(frozen=True, slots=True)
class LatencySamples:
    """Latencies of one series, in milliseconds."""

    label: str
    """Its name among the series of its run, fit to be drawn."""
    summary: LatencySummary
    rounds: Sequence[Sequence[float]]
    """Every latency in the order of measuring, by launch or round; empty if none is kept."""
    unit: str
    """launch, or round."""


def latency_samples(data: ReportData) -> list[LatencySamples]:
    """Latencies without the tracer if they were measured, else times of dumps, which have it on."""
    measured, traced = [], []
    for found in data.experiments:
        label, dumps = named(found.series.spoken(data.run.series)), found.dumps
        if found.latency and found.untraced:
            kept = data.run.robust_stats(found.series)
            launches = kept.end_to_end_rounds_ms if kept else ()
            measured.append(LatencySamples(label, found.untraced, launches, found.latency.counted_in))
        if dumps and found.times.are_shown:
            rounds = dumps.by_round(dumps.breakdown.e2e)
            traced.append(LatencySamples(label, dumps.latency, rounds, dumps.unit))
    return measured or traced


def _spread(summary: LatencySummary) -> Row:
    return {name: round(getattr(summary, name), 5) for name in ("median", "p5", "p95")}


def latency_chart(found: Sequence[LatencySamples], title: str, note: str = "") -> Chart | None:
    """Every series with its median, the middle nine in ten, and its samples in one row of dots per launch."""
    if not found:
        return None
    # Stragglers far away must not squeeze all others into a line: they stand at the right edge.
    usual = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    ends = min(each.summary.minimum for each in found), max(each.summary.maximum for each in found)
    most = max(40, MOST_SAMPLES // len(found))
    samples = [row for place, each in enumerate(found) for row in _samples(place, each, most)]
    rows: list[Row] = [
        {
            **band(place, 0.34, 0.94),
            **_spread(each.summary),
            "_colour": draw.series_colour(place),
            "_label": f"{each.label}: {milliseconds(each.summary.median)} ms "
            f"({milliseconds(each.summary.p5)} to {milliseconds(each.summary.p95)})",
            "series": each.label,
        }
        for place, each in enumerate(found)
    ]
    middle = {"series": "series", "median": "median ms", "p5": "5% ms", "p95": "95% ms"}
    colour, each_one = draw.OWN_COLOUR, {"series": "series", "launch": found[0].unit, "ms": "ms"}
    layers = [
        layer("rows", "bar", x="p5", x2="p95", **draw.BOX, color=colour, tip=middle, opacity=0.22),
        layer(
            "samples", "point", x="ms", y="_y", color=colour, tip=each_one,
            filled=True, size=14, opacity=0.55,
        ),
        layer("rows", "rule", x="median", **draw.BOX, strokeWidth=2.5),
    ]  # fmt: skip
    every = sum(len(values) for each in found for values in each.rounds)
    dots = f"; row of dots: {found[0].unit}, the slowest at the right edge" if samples else ""
    part = [f"{len(samples):,} of {every:,} inferences shown"] if len(samples) < every else []
    x = draw.axis(
        [f"ms; line: median, band: nine in ten{dots}", *part],
        draw.span(ends[0] * 0.98, min(usual, ends[1]) * 1.01) | {"clamp": True},
    )
    spec = draw.labelled({"rows": rows, "samples": samples}, layers, x, _SAMPLED_ROW)
    return Chart("latency", title, f"{note}{draw.sentence(rows)}", spec, f"*{names.ROBUST_STATS}")


def _samples(place: int, found: LatencySamples, most: int) -> Iterator[Row]:
    """Equally many samples of every launch, evenly by size, with its extremes; of many launches, some."""
    launches = [(number, sorted(ms)) for number, ms in enumerate(found.rounds, start=1) if ms]
    lanes = thinned(launches, most // 2)
    for lane, (number, values) in enumerate(lanes):
        for value in thinned(values, max(2, most // len(lanes))):
            yield {
                "series": found.label,
                "launch": number,
                "ms": round(value, 5),
                "_y": round(place + 0.38 + 0.52 * (lane + 0.5) / len(lanes), 4),
                "_colour": draw.series_colour(place),
            }


# The ladder of CPU features.

_FEWEST_RUNGS = 3


def ladder_chart(data: ReportData) -> Chart | None:
    """The rungs of an ablation ladder, on the fewest threads: latency and what each rung's feature brings."""
    found = _rungs(data.experiments) if data.timed else []
    if not any(rung.summary for rung in found):
        return None
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs if pair.comparable}
    rows: list[Row] = []
    for rung in found:
        name, gain = named(rung.series.experiment), gains.get(rung.series)
        bought = f", {gain.ratio:.2f}x the rung below" if gain and gain.ratio is not None else ""
        median = rung.summary.median if rung.summary else None
        rows.append(
            {
                "rung": name,
                "value": round(median or 0.0, 5),
                **(_spread(rung.summary) if rung.summary else {}),
                "_label": f"{name}: {milliseconds(median)} ms{bought}",
            }
        )
    title, unit = "The ladder: what each CPU feature brings", "ms; line: nine in ten"
    spread = layer("rows", "rule", x="p5", x2="p95", y="_middle", strokeWidth=2)
    return draw.bars(rows, "ladder", title, unit, names.METRICS, tip={"rung": "rung"}, over=[spread])


def _rungs(experiments: Sequence[ExperimentReport]) -> list[ExperimentReport]:
    """Experiments that differ in what is off, on the fewest threads; empty if there is no ladder."""
    known = [found for found in experiments if found.result is not None and not found.problem]
    fewest = min((found.series.threads or 0 for found in known), default=0)
    rungs: dict[tuple[str, ...], ExperimentReport] = {}
    for found in known:
        if found.result and (found.series.threads or 0) == fewest:
            rungs.setdefault(found.result.disable, found)
    return list(rungs.values()) if len(rungs) >= _FEWEST_RUNGS else []


# The projection.

_MOST_PROJECTIONS = 4


def headroom_chart(projections: Sequence[Projection], every: Collection[Series]) -> Chart | None:
    """For every series the measured latency and, dashed below it, the projected range."""
    known = [(found, found.latency_ms) for found in projections if found.latency_ms is not None]
    rows: list[Row] = []
    measured: list[Row] = []
    projected: list[Row] = []
    for found, latency in known[:_MOST_PROJECTIONS]:
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
    if not rows:
        return None
    tip = {"series": "series", "ms": "measured ms"}
    ahead = {"series": "series", "from": "projected, from ms", "to": "to ms", "least": "limit, ms"}
    layers = [
        layer("measured", "bar", x="_zero", x2="ms", **draw.BOX, tip=tip, color=draw.series_colour(0)),
        # Unlike a measurement: a shaded range in a dashed outline.
        layer("projected", "bar", x="from", x2="to", **draw.BOX, color=draw.BEFORE, opacity=0.4),
        layer(
            "projected", "bar", x="_zero", x2="to", **draw.BOX, tip=ahead,
            fillOpacity=0, strokeDash=[5, 3], strokeWidth=1.5, stroke=draw.BEFORE,
        ),
    ]  # fmt: skip
    data = {"rows": rows, "measured": measured, "projected": projected}
    spec = draw.labelled(data, layers, draw.axis("ms; dashed: projection, shaded: its range"))
    title = "What SME2 could bring: a projection, not a measurement"
    return Chart("headroom", title, draw.sentence(rows), spec, names.ANALYSIS)
