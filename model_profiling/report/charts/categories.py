"""Charts of where the time goes: in one run, in several, in number formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core.formatting import milliseconds, percent, plural, size
from model_profiling.program.category import Category
from model_profiling.report.breakdown import ShownTimes, break_down
from model_profiling.report.charts import (
    AFTER,
    BEFORE,
    BOX,
    PARTS,
    SPREAD_TIP,
    Channel,
    Row,
    axis,
    band,
    category_colours,
    labelled,
    layer,
    named,
    palette,
    projection,
    sentence,
    series_colour,
    titled,
)
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import largest_parts, shift_text
from model_profiling.statistics.latency import LatencySummary

if TYPE_CHECKING:
    from model_profiling.report.dtypes import Dtypes, OnSme2

# Where the time goes, as stacked bars, before and after one below the other, so that the shift shows; where
# times mean nothing, where the work is.

_STACK = 76
_NAMED, _LABELLED = 0.34, 0.1
"""The share of the axis that a segment must fill to hold its name, or its share alone, on a phone."""


def category_shift(pairing: Pairing, name: str) -> Chart:
    """Milliseconds of each part on both sides; the largest part of the candidate is followed across."""
    first, second = map(named, pairing.sides)
    sides = {first: break_down(pairing.baseline), second: break_down(pairing.candidate)}
    before, after = largest_parts(pairing)
    title = f"the bottleneck moves from {before.name} to {after.name}"
    if before.name == after.name:
        title = f"{after.name} stays the largest part"
    label = named(pairing.label)
    spec, spoken = _stacked(sides, {first: before.name, second: after.name})
    title = f"Where the time goes, {label}: {title}"
    summary = f"{shift_text(before, after, (first, second))} {spoken}"
    return Chart(name, title, summary, spec, f"{names.ANALYSIS}: pairs, {label}")


def categories_of(series: SeriesAnalysis, name: str) -> Chart:
    shown, label = break_down(series), named(series.label or "One inference")
    largest = max(shown.parts, key=lambda part: shown.parts[part].percent)
    spec, spoken = _stacked({label: shown}, {label: largest})
    summary = f"{largest} is the largest part ({shown.parts[largest].cells[1]}). {spoken}"
    source = f"{names.ANALYSIS}: series, {named(series.name)}"
    return Chart(name, titled("Where the time goes", series.label), summary, spec, source)


def _stacked(sides: Mapping[str, ShownTimes], largest: Mapping[str, str]) -> tuple[Row, str]:
    longest = max(shown.end_to_end.ms for shown in sides.values())
    segments: list[Row] = []
    rows: list[Row] = []
    spoken = []
    for place, (side, shown) in enumerate(sides.items()):
        segments += _segments(place, side, shown, largest[side], longest)
        whole, most = shown.end_to_end.cells[0], shown.parts[largest[side]].cells[1]
        rows.append({"_row": place, "_label": f"{side}: {whole} ms; largest: {largest[side]}, {most}"})
        parts = ", ".join(
            f"{part} {each.cells[0]} ms ({each.cells[1]})" for part, each in shown.parts.items()
        )
        spoken.append(f"{side}, {whole} ms in a typical traced run: {parts}.")
    last = list(largest.values())[-1]
    path: list[Row] = [
        {"_y": row["_top"] if place else row["_bottom"], "_start": row["_start"], "_end": row["_end"]}
        for place, row in enumerate(row for row in segments if row["category"] == last)
    ]
    colour = category_colours(row for row in segments if row["_end"] != row["_start"])
    tip = {"side": "side", "category": "category", "ms": "ms", "share": "%"}
    ink: Channel = {"field": "_ink", "type": "nominal", "scale": None}
    followed = layer(
        "path", "area", x="_start", x2="_end", y="_y", orient="horizontal", opacity=0.28, color=PARTS[last]
    )
    layers = [
        *([followed] if len(path) > 1 else []),
        layer("segments", "bar", x="_start", x2="_end", **BOX, color=colour, tip=tip),
        # The largest part is underlined, so that it is seen without colours.
        layer("segments", "rule", where="datum.largest", x="_start", x2="_end", y="_bottom", strokeWidth=3),
        layer("segments", "text", x="_centre", y="_middle", text="_text", color=ink, clip=True),
    ]
    data = {"rows": rows, "segments": segments, "path": path}
    return labelled(data, layers, axis("ms in a typical traced run"), _STACK), " ".join(spoken)


def _segments(place: int, side: str, shown: ShownTimes, largest: str, longest: float) -> Iterator[Row]:
    start = 0.0
    for part, found in shown.parts.items():
        ms, share = found.cells
        end = start + max(0.0, found.ms)
        filled = (end - start) / longest if longest > 0 else 0.0
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


def work_by_category(series: SeriesAnalysis, name: str) -> Chart | None:
    """For runs without times: each category's share of the arithmetic and, fainter below it, of the data."""
    known = [operator for operator in series.operators if operator.source.flops is not None]
    flops = sum(operator.source.flops or 0 for operator in known)
    moved = sum(operator.source.bytes_moved or 0 for operator in known)
    if not flops or not moved:
        return None
    rows: list[Row] = []
    bars: list[Row] = []
    for category in Category:
        members = [operator for operator in known if operator.category is category]
        if not members:
            continue
        own = sum(operator.source.flops or 0 for operator in members)
        data = sum(operator.source.bytes_moved or 0 for operator in members)
        place, count = len(rows), plural(len(members), "operator")
        said = f"{count}, {own / 1e6:.1f} million operations, {size(float(data))}"
        rows.append({"_row": place, "_label": f"{category.value}: {said}"})
        bars += [
            {
                **band(place, top, top + 0.22),
                "category": category.value,
                "what": what,
                "percent": round(100 * part, 1),
                "_strength": strength,
            }
            for what, part, top, strength in (
                ("arithmetic", own / flops, 0.42, 1),
                ("data", data / moved, 0.7, 0.45),
            )
        ]
    strength: Channel = {"field": "_strength", "type": "quantitative", "scale": None}
    tip = {"category": "category", "what": "of", "percent": "%"}
    colour = palette("category", PARTS)
    drawn = layer(
        "bars", "bar", x="_zero", x2="percent", **BOX, color=colour, fillOpacity=strength, tip=tip
    )  # fmt: skip
    x = axis("% of all arithmetic (upper bar), of all data (lower bar)", {"domain": [0, 100]})
    spec = labelled({"rows": rows, "bars": bars}, [drawn], x)
    return Chart(name, titled("Where the work is", series.label), sentence(rows), spec, names.GRAPH)


_SWITCHES = {"on": "#e07b1f", "off": "#3b7dd8"}
_OTHER = "#8a8f98"
_TOLD = 8
"""How many bars are described in words at most."""


def latency_bars(bars: Sequence[tuple[str, str, LatencySummary]], what: str = "run") -> Chart:
    """Medians as bars, with a line over nine in ten inferences; a bar is a label, the switch, a latency."""
    told = [f"{named(label)}: {milliseconds(latency.median)} ms" for label, _, latency in bars]
    rows: list[Row] = [
        {
            **band(place, 0.42, 0.86),
            "_label": told[place],
            what: label,
            "SME2": sme2,
            "ms": round(latency.median, 6),
            "low": round(latency.p5, 6),
            "high": round(latency.p95, 6),
        }
        for place, (label, sme2, latency) in enumerate(bars)
    ]
    colour = palette("SME2", {sme2: _SWITCHES.get(sme2, _OTHER) for _, sme2, _ in bars}, title="SME2")
    tip = {name: name for name in (what, "SME2", "ms", "low", "high")}
    layers = [
        layer("rows", "bar", x="_zero", x2="ms", **BOX, color=colour, tip=tip),
        layer("rows", "rule", x="low", x2="high", y="_middle", strokeWidth=2),
    ]
    if len(bars) > _TOLD:
        ends = sorted(range(len(bars)), key=lambda place: bars[place][2].median)
        told = [f"From {told[ends[0]]}", f"to {told[ends[-1]]}"]
    summary = f"Median, and the range of nine in ten. {'; '.join(told)}."
    spec = labelled({"rows": rows}, layers, axis(["ms, without the tracer", "line: nine in ten"]))
    return Chart("latency", "End-to-end latency", summary, spec, f"{names.METRICS} of each run")


def coverage_bars(found: Iterable[tuple[str, OnSme2 | None]], title: str, source: str) -> Chart | None:
    """How much of each program's matrix arithmetic ran on SME2; None if that is known of none."""
    rows: list[Row] = []
    bars: list[Row] = []
    for place, (name, sme2) in enumerate(found):
        label = f"{named(name)}: not tested"
        if sme2 is not None and sme2.arithmetic_share is not None:
            count = f"{sme2.operators} of {plural(sme2.operators_total or 0, 'matrix operator')}"
            label = f"{named(name)}: {percent(sme2.arithmetic_share)}, {count}"
            shares = {"percent": round(100 * sme2.arithmetic_share, 1), "_whole": 100}
            bars.append({**band(place, 0.42, 0.86), "program": name, "operators": count, **shares})
        rows.append({"_row": place, "_label": label})
    if not bars:
        return None
    tip = {"program": "program", "operators": "on SME2", "percent": "% of the matrix arithmetic"}
    layers = [
        layer("bars", "bar", x="_zero", x2="_whole", **BOX, color=BEFORE, opacity=0.25),
        layer("bars", "bar", x="_zero", x2="percent", **BOX, color=AFTER, tip=tip),
    ]
    x = axis("% of the matrix arithmetic on SME2", {"domain": [0, 100]})
    return Chart("coverage", title, sentence(rows), labelled({"rows": rows, "bars": bars}, layers, x), source)


def parts_bars(bars: Sequence[tuple[str, ShownTimes]], *, shares: bool) -> Chart:
    """Bars split into categories and overheads, in milliseconds or as shares of each bar."""
    rows = [{"_row": place, "_label": named(label)} for place, (label, _) in enumerate(bars)]
    segments: list[Row] = []
    for place, (label, shown) in enumerate(bars):
        end = 0.0
        for part, found in shown.parts.items():
            begin, end = end, end + (found.percent if shares else found.ms)
            row = {"run": label, "part": part, "ms": found.ms, "share": found.percent}
            segments.append(
                {**band(place, 0.42, 0.86), **row, "_from": round(begin, 6), "_to": round(end, 6)}
            )
    tip = {name: name for name in ("run", "part", "ms", "share")}
    colour = palette("part", PARTS, title=None)
    drawn = layer("segments", "bar", x="_from", x2="_to", **BOX, color=colour, tip=tip)
    x = axis("percent of the run's time" if shares else "ms per inference, with the tracer")
    largest = [(label, *max(shown.parts.items(), key=lambda part: part[1].percent)) for label, shown in bars]
    told = "; ".join(f"{label}: {part}, {found.percent:.1f}%" for label, part, found in largest[:_TOLD])
    more = f"; and {len(bars) - _TOLD} more" if len(bars) > _TOLD else ""
    name, title = ("shares", "Shares of the time") if shares else ("categories", "Where the time goes")
    spec = labelled({"rows": rows, "segments": segments}, [drawn], x)
    summary = f"The largest part of each. {told}{more}."
    return Chart(name, title, summary, spec, f"{names.ANALYSIS} of each run")


# Number formats of one model side by side: latency, with its projection if there is one, and SME2 coverage.

_TALL_ROW = 60


def dtypes_charts(found: Dtypes) -> list[Chart]:
    """Latencies that say nothing about Arm are drawn only if nothing else is known."""
    sides = ((side.dtype, side.sme2) for side in found.worked)
    coverage = coverage_bars(sides, f"SME2 coverage of {named(found.model)} by number format", names.DTYPES)
    latency = _dtype_latencies(found) if found.judged_by_time or coverage is None else None
    return [chart for chart in (latency, coverage) if chart]


def _dtype_latencies(found: Dtypes) -> Chart | None:
    rows: list[Row] = []
    projected: list[Row] = []
    for side in found.worked:
        latency, place = side.latency, len(rows)
        if latency is None:
            continue
        label = f"{side.dtype}: {milliseconds(latency.median_ms)} ms"
        if ahead := side.projected:
            label += (
                f"; with SME2, PROJECTED: {milliseconds(ahead.low_ms)} to {milliseconds(ahead.high_ms)} ms"
            )
            ends = {"from": round(ahead.low_ms, 5), "to": round(ahead.high_ms, 5)}
            projected.append({**band(place, 0.7, 0.94), "dtype": side.dtype, **ends})
        rows.append(
            {
                **band(place, 0.38, 0.64),
                "_label": label,
                "dtype": side.dtype,
                **{name: round(getattr(latency, f"{name}_ms"), 5) for name in SPREAD_TIP},
            }
        )
    if not rows:
        return None
    tip = {"dtype": "dtype", **SPREAD_TIP}
    layers = [
        layer("rows", "bar", x="_zero", x2="median", **BOX, tip=tip, color=series_colour(0)),
        layer("rows", "rule", x="p5", x2="p95", y="_middle", strokeWidth=2),
        *projection({"dtype": "dtype", "from": "projected, from ms", "to": "to ms"}),
    ]
    x = axis(["ms; line: nine in ten", *(["dashed: projection, not measured"] if projected else [])])
    doubt = "" if found.judged_by_time else " These latencies say nothing about Arm."
    cpu = f", on {named(found.cpu)}" if found.cpu else ""
    title = f"Latency of {named(found.model)} by number format{cpu}"
    spec = labelled({"rows": rows, "projected": projected}, layers, x, _TALL_ROW)
    return Chart("dtypes", title, f"{sentence(rows)}{doubt}", spec, names.DTYPES)
