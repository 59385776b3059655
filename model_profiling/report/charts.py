"""Primitives of every chart: colours, axes, layers of marks, and charts as SVG files.

A chart declares rows of data and the layers drawn from them; this module makes Vega-Lite of them. Text, rules
and axes have no colour of their own: the page's theme gives them one. Names come from files that anybody may
have written, so they are only ever data: never a field's name, an expression or a link.
"""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model_profiling.core.formatting import printable_data
from model_profiling.report.document import Chart

PARTS = {
    "Convolution": "#3b7dd8",
    "GEMM": "#8e5bd0",
    "Data Movement": "#e07b1f",
    "Elementwise": "#2f9e77",
    "Other": "#c2528b",
    "Framework overhead": "#8a8f98",
    "Unattributed": "#b9bec6",
}
"""Categories and overheads in stacking order, in colours that colour-blind readers can tell apart."""
SERIES = ("#0e8a93", "#b5532f", "#7a841a", "#5468ad", "#a2467f", "#5f6b73")
"""Colours of experiments in the order of the run; none is the colour of a category."""
BEFORE, AFTER = "#8a8f98", "#0e8a93"
VEGA_LITE = "6.1"
ROW = 46
"""Pixels of a row with its label above its marks: names are long, and phones narrow."""

_WIDTH = 640
_TITLE = 84
"""Characters of a title that fit into that width."""
_LONGEST_NAME = 90
_TOLD = 12
"""The most rows that are described in words."""
_LOOK = {
    "font": "Helvetica, Arial, sans-serif",
    "title": {"anchor": "start", "fontSize": 14},
    "axis": {"gridColor": "#e4e7eb", "labelColor": "#333", "titleColor": "#333", "titleFontWeight": "normal"},
    "legend": {"labelColor": "#333"},
    "text": {"color": "#1c1f23"},
    "rule": {"color": "#1c1f23"},
    "view": {"stroke": None},
}
"""Style of the SVG files beside a Markdown page, which are always on white."""

Row = dict[str, object]
"""Data of one mark. Fields that only say where and how it is drawn begin with `_`; the others are the chart's
numbers, which a page also shows as a table."""
Channel = dict[str, object]
Layer = dict[str, Any]


def axis(title: str | Sequence[str], scale: Mapping[str, object] | None = None, **ticks: object) -> Channel:
    return {
        "type": "quantitative",
        "title": title if isinstance(title, str) else list(title),
        "scale": dict(scale or {}),
        "axis": ticks or {"tickCount": 6},
    }


def span(low: float, high: float) -> Channel:
    """A scale with exactly these ends."""
    return {"domain": [low, high], "nice": False, "zero": False}


BOX: Layer = {"y": "_top", "y2": "_bottom"}
OWN_COLOUR: Channel = {"field": "_colour", "type": "nominal", "scale": None}


def band(place: int, top: float, bottom: float) -> Row:
    """The place of a mark in a row of the chart, as fractions of the row's height."""
    return {
        "_row": place,
        "_top": round(place + top, 4),
        "_middle": round(place + (top + bottom) / 2, 4),
        "_bottom": round(place + bottom, 4),
        "_zero": 0,
    }


def layer(
    data: str, mark: str, *, tip: Mapping[str, str] | None = None, where: str = "", **given: object
) -> Layer:
    """Marks drawn from the rows called `data`.

    In `given`, a text for a place (`x`, `x2`, `y`, `y2`, `text`) is the field it is read from, a mapping is a
    Vega-Lite channel, and all else is the look of the mark. `tip` names the fields of the tooltip.
    """
    channels: Row = {}
    look: Row = {"type": mark}
    for name, value in given.items():
        if name in ("x", "x2", "y", "y2", "text") and isinstance(value, str):
            channels[name] = {"field": value}
        elif isinstance(value, Mapping):
            channels[name] = value
        else:
            look[name] = value
    if tip:
        channels["tooltip"] = [{"field": field, "title": title} for field, title in tip.items()]
    chosen: Row = {"transform": [{"filter": where}]} if where else {}
    return {"data": {"name": data}, **chosen, "mark": look, "encoding": channels}


def layered(
    data: Mapping[str, Sequence[Row]], layers: Sequence[Layer], x: Channel, y: Channel, height: object = 220
) -> Row:
    """Layers over each other on the same axes. Width and text colours are up to the page."""
    for each in layers:
        channels = each["encoding"]
        for name, shared in (("x", x), ("y", y)):
            if "field" in channels.get(name, ()):
                channels[name] = {**shared, **channels[name]}
    return {"layer": list(layers), "height": height, "datasets": {name: list(data[name]) for name in data}}


def labelled(
    data: Mapping[str, Sequence[Row]], layers: Sequence[Layer], x: Channel, height: float = ROW
) -> Row:
    """Layers on rows of `height` pixels, the first on top, each with its `_label` above its marks."""
    count = len(data["rows"])
    y: Channel = {"type": "quantitative", "axis": None, "scale": span(count, 0)}
    text = layer(
        "rows", "text", x={"value": 2}, y="_row", text="_label",
        align="left", baseline="top", dy=4, clip=True,
    )  # fmt: skip
    return layered(data, [*layers, text], x, y, height * count)


def bars(
    rows: Sequence[Row],
    name: str,
    title: str,
    unit: str,
    source: str,
    *,
    colour: object = SERIES[0],
    tip: Mapping[str, str],
    over: Sequence[Layer] = (),
) -> Chart:
    """A bar for each row, from zero to its `value`, with the layers `over` it."""
    placed = [{**band(place, 0.48, 0.9), **row} for place, row in enumerate(rows)]
    tip = {**tip, "value": unit}
    layers = [layer("rows", "bar", x="_zero", x2="value", **BOX, color=colour, tip=tip), *over]
    return Chart(name, title, sentence(rows), labelled({"rows": placed}, layers, axis(unit)), source)


def category_colours(rows: Iterable[Row]) -> Channel:
    """Colours by `category`, with a legend of the categories that are there."""
    present = {row["category"] for row in rows}
    colours = {name: colour for name, colour in PARTS.items() if name in present}
    look = {"title": None, "orient": "top", "columns": 2, "symbolType": "square", "symbolStrokeWidth": 0}
    scale = {"domain": list(colours), "range": list(colours.values())}
    return {"field": "category", "type": "nominal", "scale": scale, "legend": look}


def series_colour(place: int) -> str:
    return SERIES[place % len(SERIES)]


def sentence(rows: Sequence[Row]) -> str:
    """The labels of a chart's first rows, for those who cannot see it."""
    more = f"; and {len(rows) - _TOLD} more" if len(rows) > _TOLD else ""
    return f"{'; '.join(str(row['_label']) for row in rows[:_TOLD])}{more}."


def draw_svg(chart: Chart) -> str:
    import vl_convert

    look = {"title": textwrap.wrap(chart.title, _TITLE), "background": "white", "config": _LOOK}
    spec = json.dumps(printable_data({"width": _WIDTH, **chart.spec, **look}), allow_nan=False)
    svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    return svg


def named(text: str) -> str:
    """A name from a file, fit to be drawn: one line of limited length that an SVG file can hold."""
    line = " ".join(text.split())
    safe = "".join(
        "\ufffd" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Cn") else letter for letter in line
    )
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[: _LONGEST_NAME - 1]}\u2026"


def titled(title: str, label: str) -> str:
    """`title`, and the series or comparison that it is of if there are several."""
    return f"{title}: {named(label)}" if label else title
