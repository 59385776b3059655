"""What all charts share: colours, how a declaration becomes a block, and how a block becomes an SVG file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model_profiling.report.document import Chart

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
VEGA_LITE = "6.1"


def make_chart(
    name: str, title: str, summary: str, drawn: altair.LayerChart | altair.Chart, source: str
) -> Chart:
    """A chart as a block. Width and text colours are left to the page: it may be light, dark or narrow."""
    spec = drawn.to_dict()
    spec.pop("config", None)
    spec.pop("$schema", None)
    return Chart(name, title, summary, spec, source)


def draw_svg(chart: Chart) -> str:
    import vl_convert

    spec = {"width": 640, **chart.spec, "title": chart.title, "background": "white"}
    svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)
    return svg
