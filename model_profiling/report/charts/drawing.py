"""What all charts share: colours, how a declaration becomes a block, and how a block becomes an SVG file.

Text, rules and axes have no colour of their own: the page's theme gives them one. Names come from files that
anybody may have written, so they are only ever data: never a field's name, an expression or a link.
"""

from __future__ import annotations

import json
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from model_profiling.core.formatting import printable_data
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import Chart
from model_profiling.run import Series, names
from model_profiling.statistics.latency import LatencySummary

if TYPE_CHECKING:
    import altair


PARTS = {
    "Convolution": "#3b7dd8",
    "GEMM": "#8e5bd0",
    "Data Movement": "#e07b1f",
    "Elementwise": "#2f9e77",
    "Other": "#c2528b",
    "Framework overhead": "#8a8f98",
    "Unattributed": "#b9bec6",
}
"""Categories and overheads, in the order they are stacked; told apart by people who see fewer colours."""
SERIES = ("#0e8a93", "#b5532f", "#7a841a", "#5468ad", "#a2467f", "#5f6b73")
"""Experiments, in the order of the run; none of them is a category's."""
BEFORE, AFTER = "#8a8f98", "#0e8a93"
VEGA_LITE = "6.1"
ROW = 46
"""Pixels of a row that has its label above what it shows: names are long, and phones narrow."""

_WIDTH = 640
_TITLE = 84
"""Letters of a title that fit into that width."""
_LONGEST_NAME = 90
_LOOK = {
    "font": "Helvetica, Arial, sans-serif",
    "title": {"anchor": "start", "fontSize": 14},
    "axis": {"gridColor": "#e4e7eb", "labelColor": "#333", "titleColor": "#333", "titleFontWeight": "normal"},
    "legend": {"labelColor": "#333"},
    "text": {"color": "#1c1f23"},
    "rule": {"color": "#1c1f23"},
    "view": {"stroke": None},
}
"""Of the files beside a Markdown page, which are always on white."""

Row = dict[str, object]
"""What a mark is drawn from. Fields that only say where and how it is drawn begin with `_`; the others are
the chart's numbers, which a page also shows as a table."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """The words of a chart; see `document.Chart`."""

    name: str
    title: str
    summary: str
    source: str


def make_chart(
    about: About,
    drawn: altair.LayerChart | altair.FacetChart | altair.Chart,
    data: Mapping[str, Sequence[Row]],
) -> Chart:
    """A chart as a block; its layers name their rows in `data`. Width and colours of text are left to the
    page: it may be light, dark or narrow."""
    # Checking against the schema takes longer than all the rest; tests compile every kind of chart instead.
    spec = drawn.to_dict(validate=False)
    for key in ("config", "$schema"):
        spec.pop(key, None)
    spec["datasets"] = {name: list(rows) for name, rows in data.items()}
    return Chart(about.name, about.title, about.summary, spec, about.source)


def draw_svg(chart: Chart) -> str:
    title = textwrap.wrap(chart.title, _TITLE)
    spec = printable_data({**chart.spec, "title": title})
    return _svg(json.dumps(spec, allow_nan=False), _WIDTH)


@lru_cache(maxsize=256)
def _svg(spec: str, width: int) -> str:
    """Reports of one run are written again when something was added to it; most charts stay the same."""
    import vl_convert

    whole = {"width": width, **json.loads(spec), "background": "white", "config": _LOOK}
    svg: str = vl_convert.vegalite_to_svg(whole, vl_version=VEGA_LITE)
    return svg


def named(text: str) -> str:
    """A name from a file, fit to be drawn: one line, not endless, nothing that an SVG file cannot hold."""
    line = " ".join(text.split())
    safe = "".join(
        "\ufffd" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Cn") else letter for letter in line
    )
    return safe if len(safe) <= _LONGEST_NAME else f"{safe[: _LONGEST_NAME - 1]}\u2026"


def thinned(values: Sequence[T], most: int) -> list[T]:
    """At most `most` of them in even steps, the first and the last included."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is read better on a colour."""
    light = sum(
        weight * _linear(int(colour[at : at + 2], 16) / 255)
        for weight, at in zip((0.2126, 0.7152, 0.0722), (1, 3, 5), strict=True)
    )
    return "#ffffff" if 1.05 / (light + 0.05) > (light + 0.05) / 0.05 else "#000000"


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of several series."""
    return {name: series_colour(place) for place, name in enumerate(dict.fromkeys(names))}


def series_colour(place: int) -> str:
    return SERIES[place % len(SERIES)]


def across(
    title: str | Sequence[str], scale: altair.Scale | None = None, axis: altair.Axis | None = None
) -> Callable[[str], altair.X]:
    """Makes the horizontal place of every layer: they share an axis only if all say the same of it."""
    import altair as alt

    lines = title if isinstance(title, str) else list(title)
    whole = alt.Undefined if scale is None else scale
    ticks = alt.Axis(tickCount=6) if axis is None else axis
    return lambda field: alt.X(f"{field}:Q", title=lines, scale=whole, axis=ticks)


def down(rows: int) -> Callable[[str], altair.Y]:
    """Makes the vertical place in a chart of so many rows, the first on top: a row has the height 1."""
    import altair as alt

    scale = alt.Scale(domain=[rows, 0], nice=False, zero=False)
    return lambda field: alt.Y(f"{field}:Q", axis=None, scale=scale)


def box(
    x: Callable[[str], altair.X], y: Callable[[str], altair.Y], start: str, end: str
) -> dict[str, altair.X | altair.X2 | altair.Y | altair.Y2]:
    """Where a bar lies: between two fields across, from `_top` to `_bottom`."""
    import altair as alt

    return {"x": x(start), "x2": alt.X2(end), "y": y("_top"), "y2": alt.Y2("_bottom")}


def work_bars(place: int, whose: Row, arithmetic: float, data: float) -> list[Row]:
    """In a row of a chart: a share of the arithmetic, and below it, fainter, a share of the data."""
    both = (("arithmetic", arithmetic, 0.42, 1), ("data", data, 0.7, 0.45))
    return [
        {
            **whose,
            "what": what,
            "_zero": 0,
            "percent": round(100 * part, 1),
            "_top": place + top,
            "_bottom": place + top + 0.22,
            "_strength": strength,
        }
        for what, part, top, strength in both
    ]


def row_labels(y: Callable[[str], altair.Y]) -> altair.Chart:
    """What each row is and says, above what it shows: `_row` and `_label` of the data `rows`."""
    import altair as alt

    base = alt.Chart(alt.NamedData(name="rows"))
    labels: altair.Chart = base.mark_text(align="left", baseline="top", dy=4, clip=True)
    placed: altair.Chart = labels.encode(x=alt.value(2), y=y("_row"), text=alt.Text("_label:N"))
    return placed


def tooltips(**fields: str) -> list[altair.Tooltip]:
    """What a pointer shows: `ms="milliseconds"` names a number, `operator="operator:N"` text."""
    import altair as alt

    shown = []
    for field, title in fields.items():
        words, text, _ = title.partition(":N")
        shown.append(alt.Tooltip(f"{field}:{'N' if text else 'Q'}", title=words))
    return shown


def series_legend(title: str | None = None) -> altair.Legend:
    """Names of series are long: one below the other."""
    import altair as alt

    return alt.Legend(orient="top", columns=1, title=title, labelLimit=320)


def category_colour(fields: Iterable[str]) -> altair.Color:
    """Of marks whose rows have a `category`; the legend names those that are there."""
    import altair as alt

    present = set(fields)
    there = [name for name in PARTS if name in present]
    scale = alt.Scale(domain=there, range=[PARTS[name] for name in there])
    legend = alt.Legend(orient="top", columns=2, title=None, symbolType="square", symbolStrokeWidth=0)
    return alt.Color("category:N", scale=scale, legend=legend)


# What was timed of each series of a run, as charts show it: every latency with its statistics.

MOST_SAMPLES = 600
"""In one chart: more are not told apart, and a page is to stay small."""
MOST_SERIES = 6
"""That lines and colours still tell apart."""
FEWEST_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Sampled:
    """One series; milliseconds."""

    series: Series
    summary: LatencySummary
    rounds: Sequence[Sequence[float]]
    """Every latency in the order it was measured, by launch or round; empty where none is kept."""
    unit: str
    """launch, or round."""
    source: str
    """The file they are from."""

    @property
    def label(self) -> str:
        return named(str(self.series))

    @property
    def count(self) -> int:
        return sum(map(len, self.rounds))


def sampled(data: ReportData) -> list[Sampled]:
    """Latencies without the tracer where they were measured; else times of dumps, which have it on."""
    measured = [(found, found.latency.end_to_end_ms) for found in data.experiments if found.latency]
    known = [_measured(data, found, summary) for found, summary in measured if summary]
    return known or [_of_dumps(found) for found in data.experiments if found.dumps and found.times.are_shown]


def _measured(data: ReportData, found: ExperimentReport, summary: LatencySummary) -> Sampled:
    kept = data.run.robust_stats(found.series)
    file = found.result.latency if found.result and found.result.latency else names.METRICS
    unit = "launch" if found.latency and found.latency.measured == "lockstep" else "round"
    return Sampled(found.series, summary, kept.end_to_end_rounds_ms if kept else (), unit, file)


def _of_dumps(found: ExperimentReport) -> Sampled:
    dumps = found.dumps
    assert dumps is not None
    rounds = dumps.by_round(dumps.breakdown.e2e)
    return Sampled(found.series, dumps.latency, rounds, dumps.unit, dumps.first.path.name)


def usual_end(found: Sequence[Sampled]) -> float:
    """Where an axis of latencies ends: stragglers far away must not squeeze all others into a line."""
    far = max(each.summary.p95 + 1.5 * (each.summary.p95 - each.summary.p5) for each in found)
    return min(far, max(each.summary.maximum for each in found))


def files_of(found: Sequence[Sampled]) -> str:
    return ", ".join(dict.fromkeys(each.source for each in found))
