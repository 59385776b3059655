"""Charts of where the time goes: in one run, in several, in number formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from model_profiling.analysis.categories import Category
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import milliseconds, plural, size
from model_profiling.report.breakdown import ShownTimes, break_down
from model_profiling.report.charts import (
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
    layered,
    named,
    palette,
    projection,
    sentence,
    series_colour,
)
from model_profiling.report.document import Chart
from model_profiling.report.pair_text import largest_parts
from model_profiling.run import names
from model_profiling.statistics.latency import LatencySummary

if TYPE_CHECKING:
    from model_profiling.report.dtypes import Dtypes

# Where the time goes, as stacked bars, before and after one below the other, so that the shift shows; where
# times mean nothing, where the work is.

_STACK = 76
_NAMED, _LABELLED = 0.34, 0.1
"""The share of the axis that a segment must fill to hold its name, or its share alone, on a phone."""


def category_shift(pairing: Pairing, name: str) -> Chart:
    """Milliseconds of each part on both sides; the largest part of the candidate is followed across."""
    first, second = map(named, pairing.sides)
    sides = {first: break_down(pairing.baseline), second: break_down(pairing.candidate)}
    before, after = (part.name for part in largest_parts(pairing))
    was, now = (sides[side].parts[after].cells[1] for side in sides)
    if before == after:
        title = f"{after} stays the largest part"
        shift = f"{after} is the largest part with {first} ({was}) and with {second} ({now})."
    else:
        title = f"the bottleneck moves from {before} to {after}"
        shift = (
            f"The bottleneck moves from {before} ({sides[first].parts[before].cells[1]} of the time with "
            f"{first}) to {after} ({was} with {first}, {now} with {second})."
        )
    label = named(pairing.label)
    spec, spoken = _stacked(sides, {first: before, second: after})
    title = f"Where the time goes, {label}: {title}"
    return Chart(name, title, f"{shift} {spoken}", spec, f"{names.ANALYSIS}: pairs, {label}")


def categories_of(series: SeriesAnalysis, name: str) -> Chart:
    shown, label = break_down(series), named(series.name)
    largest = max(shown.parts, key=lambda part: shown.parts[part].percent)
    spec, spoken = _stacked({label: shown}, {label: largest})
    summary = f"{largest} is the largest part ({shown.parts[largest].cells[1]}). {spoken}"
    return Chart(name, f"Where the time goes: {label}", summary, spec, f"{names.ANALYSIS}: series, {label}")


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
        spoken.append(f"{side}, {whole} ms with the tracer on: {parts}.")
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
    return labelled(data, layers, axis("ms per inference, with the tracer on"), _STACK), " ".join(spoken)


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


Work = tuple[str, str, float, float]
"""A row about work: name, label, and its share of the arithmetic and of the data."""


def work_by_category(series: SeriesAnalysis, name: str) -> Chart | None:
    """For runs without times: the share of each category in the arithmetic and in the data."""
    known = [operator for operator in series.operators if operator.source.flops is not None]
    flops = sum(operator.source.flops or 0 for operator in known)
    moved = sum(operator.source.bytes_moved or 0 for operator in known)
    if not flops or not moved:
        return None
    work: list[Work] = []
    for category in Category:
        members = [operator for operator in known if operator.category is category]
        own = sum(operator.source.flops or 0 for operator in members)
        data = sum(operator.source.bytes_moved or 0 for operator in members)
        said = f"{plural(len(members), 'operator')}, {own / 1e6:.1f} million operations, {size(float(data))}"
        if members:
            work.append((category.value, said, own / flops, data / moved))
    spec, said = _work(
        work,
        "category",
        "%",
        "% of all arithmetic (upper bar), of all data (lower bar)",
        palette("category", PARTS),
    )
    return Chart(name, f"Where the work is: {named(series.name)}", said, spec, names.GRAPH)


def _work(
    work: Iterable[Work], field: str, unit: str, title: str | Sequence[str], colour: object
) -> tuple[Row, str]:
    """Rows with the share of the arithmetic and, fainter below it, of the data; and the same in words."""
    rows: list[Row] = []
    bars: list[Row] = []
    for place, (name, said, arithmetic, data) in enumerate(work):
        rows.append({"_row": place, "_label": f"{name}: {said}"})
        bars += [
            {
                **band(place, top, top + 0.22),
                field: name,
                "what": what,
                "percent": round(100 * part, 1),
                "_strength": strength,
            }
            for what, part, top, strength in (("arithmetic", arithmetic, 0.42, 1), ("data", data, 0.7, 0.45))
        ]
    strength: Channel = {"field": "_strength", "type": "quantitative", "scale": None}
    tip = {field: field, "what": "of", "percent": unit}
    drawn = layer(
        "bars", "bar", x="_zero", x2="percent", **BOX, color=colour, fillOpacity=strength, tip=tip
    )  # fmt: skip
    return labelled({"rows": rows, "bars": bars}, [drawn], axis(title, {"domain": [0, 100]})), sentence(rows)


_SWITCHES = {"on": "#e07b1f", "off": "#3b7dd8"}
_OTHER = "#8a8f98"
_RUNS: Channel = {"type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}}
_STEP = {"step": 22}
_TOLD = 8
"""How many bars are described in words at most."""


def latency_bars(bars: Sequence[tuple[str, str, LatencySummary]]) -> Chart:
    """Medians as bars, with a line over nine in ten inferences; a bar is a label, the switch, a latency."""
    rows: list[Row] = [
        {
            "run": label,
            "SME2": sme2,
            "ms": round(latency.median, 6),
            "low": round(latency.p5, 6),
            "high": round(latency.p95, 6),
        }
        for label, sme2, latency in bars
    ]
    colour = palette("SME2", {sme2: _SWITCHES.get(sme2, _OTHER) for _, sme2, _ in bars}, title="SME2")
    tip = {name: name for name in ("run", "SME2", "ms", "low", "high")}
    layers = [
        layer("rows", "bar", x="ms", y="run", color=colour, tip=tip),
        layer("rows", "rule", x="low", x2="high", y="run"),
    ]
    told = [f"{label}: {milliseconds(latency.median)} ms" for label, _, latency in bars]
    if len(bars) > _TOLD:
        ends = sorted(range(len(bars)), key=lambda place: bars[place][2].median)
        told = [f"From {told[ends[0]]}", f"to {told[ends[-1]]}"]
    summary = f"Median, and the range of nine in ten. {'; '.join(told)}."
    x = axis("milliseconds per inference, without the tracer")
    spec = layered({"rows": rows}, layers, x, _RUNS, _STEP)
    return Chart("latency", "End-to-end latency", summary, spec, f"{names.METRICS} of each run")


def parts_bars(bars: Sequence[tuple[str, ShownTimes]], *, shares: bool) -> Chart:
    """Bars split into categories and overheads, in milliseconds or as shares of each bar."""
    rows: list[Row] = [
        {"run": label, "part": part, "ms": found.ms, "share": found.percent, "place": place}
        for label, shown in bars
        for place, (part, found) in enumerate(shown.parts.items())
    ]
    drawn = layer(
        "rows", "bar", x="share" if shares else "ms", y="run", order={"field": "place"},
        color=palette("part", PARTS, title=None), tip={name: name for name in ("run", "part", "ms", "share")},
    )  # fmt: skip
    x = axis("percent of the run's own time" if shares else "milliseconds per inference, with the tracer on")
    largest = [(label, *max(shown.parts.items(), key=lambda part: part[1].percent)) for label, shown in bars]
    told = "; ".join(f"{label}: {part}, {found.percent:.1f}%" for label, part, found in largest[:_TOLD])
    more = f"; and {len(bars) - _TOLD} more" if len(bars) > _TOLD else ""
    name, title = ("shares", "Shares of the time") if shares else ("categories", "Where the time goes")
    spec = layered({"rows": rows}, [drawn], x, _RUNS, _STEP)
    summary = f"The largest part of each. {told}{more}."
    return Chart(name, title, summary, spec, f"{names.ANALYSIS} of each run")


# Number formats of one model side by side: latency, with its projection if there is one; without latencies,
# arithmetic and data.

_TALL_ROW = 60


def dtypes_chart(found: Dtypes) -> Chart | None:
    return _dtype_latencies(found) or _dtype_work(found)


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


def _dtype_work(found: Dtypes) -> Chart | None:
    sides = [(side, side.work) for side in found.worked if side.work]
    flops = max((work.flops for _, work in sides), default=0)
    moved = max((work.bytes_moved for _, work in sides), default=0)
    if not flops or not moved:
        return None
    title = ["% of the most: arithmetic (upper bar), data (lower bar)", "no time was measured"]
    work = [
        (
            side.dtype,
            f"{work.flops / 1e6:,.1f} million operations, {size(work.bytes_moved)} moved",
            work.flops / flops,
            work.bytes_moved / moved,
        )
        for side, work in sides
    ]
    spec, said = _work(work, "dtype", "% of the most", title, series_colour(0))
    name = f"Work of {named(found.model)} by number format"
    return Chart("dtypes", name, f"{said} No latency was measured.", spec, names.DTYPES)
