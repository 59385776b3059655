"""Charts of where the time goes, as stacked bars of one side, two, or several runs; without times, of the
work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core.formatting import plural, size
from model_profiling.program.category import Category
from model_profiling.report.breakdown import ShownTimes, break_down, largest_parts, shift_text
from model_profiling.report.charts import (
    BOX,
    PARTS,
    Channel,
    Row,
    axis,
    band,
    category_colours,
    labelled,
    layer,
    named,
    palette,
    sentence,
    titled,
)
from model_profiling.report.document import Chart

_STACK = 76
_NAMED, _LABELLED = 0.34, 0.1
"""The share of the axis that a segment must fill to hold its name, or its share alone, on a phone."""
_TOLD = 8
"""How many bars are described in words at most."""


def category_shift(pairing: Pairing, name: str) -> Chart:
    """Milliseconds of each part on both sides."""
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
    return Chart(name, title, summary, spec, names.ANALYSIS)


def categories_of(series: SeriesAnalysis, name: str) -> Chart:
    shown, label = break_down(series), named(series.label or "One inference")
    largest = max(shown.parts, key=lambda part: shown.parts[part].percent)
    spec, spoken = _stacked({label: shown}, {label: largest})
    summary = f"{largest} is the largest part ({shown.parts[largest].cells[1]}). {spoken}"
    source = names.ANALYSIS
    return Chart(name, titled("Where the time goes", series.label), summary, spec, source)


def several_runs(sides: Mapping[str, ShownTimes], source: str) -> Chart:
    """A bar for each side; the words name the largest part of the first few."""
    largest = {
        side: max(shown.parts, key=lambda part: shown.parts[part].percent) for side, shown in sides.items()
    }
    spec, _ = _stacked(sides, largest)
    words = [f"{side}: {part}, {sides[side].parts[part].cells[1]}" for side, part in largest.items()]
    more = f"; and {len(words) - _TOLD} more" if len(words) > _TOLD else ""
    summary = f"The largest part of each. {'; '.join(words[:_TOLD])}{more}."
    return Chart("categories", "Where the time goes", summary, spec, source)


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
    colour = category_colours(row for row in segments if row["_end"] != row["_start"])
    tip = {"side": "side", "category": "category", "ms": "ms", "share": "%"}
    ink: Channel = {"field": "_ink", "type": "nominal", "scale": None}
    layers = [
        layer("segments", "bar", x="_start", x2="_end", **BOX, color=colour, tip=tip),
        # The largest part is underlined, so that it is seen without colours.
        layer("segments", "rule", where="datum.largest", x="_start", x2="_end", y="_bottom", strokeWidth=3),
        layer("segments", "text", x="_centre", y="_middle", text="_text", color=ink, clip=True),
    ]
    data = {"rows": rows, "segments": segments}
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
