"""Blocks as HTML for a notebook's cell: no scripts, charts as pictures, the notebook's own colours."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from model_profiling.report.charts.drawing import draw_svg
from model_profiling.report.document import Block, Chart, Explorer, Figure, Folded
from model_profiling.report.html.blocks import block_html

# A notebook is light or dark; text keeps its colour, and lines are faint in both.
_STYLE = (
    ".sme2prof table{font-size:inherit;border-collapse:collapse;margin:.5em 0}"
    ".sme2prof th,.sme2prof td{text-align:left;padding:.2em .7em;border-bottom:1px solid #8886}"
    ".sme2prof .number{text-align:right;font-variant-numeric:tabular-nums}"
    ".sme2prof .table{overflow-x:auto}.sme2prof summary{cursor:pointer}"
    ".sme2prof figure{margin:.5em 0}.sme2prof img{max-width:100%;height:auto;background:#fff}"
)


def render_fragment(blocks: Iterable[Block]) -> str:
    body = "\n".join(map(block_html, _still(blocks)))
    return f'<div class="sme2prof"><style>{_STYLE}</style>\n{body}\n</div>'


def _still(blocks: Iterable[Block]) -> Iterator[Block]:
    """The same without what needs a script. A picture is an image of its own: drawings of several cells would
    share the names of their parts, and nothing in an image runs."""
    for block in blocks:
        match block:
            case Chart():
                drawn = base64.b64encode(draw_svg(block).encode()).decode()
                yield Figure(f"data:image/svg+xml;base64,{drawn}", block.summary)
            case Explorer(instead=inside):
                yield from _still(inside)
            case Folded(summary, inside):
                yield Folded(summary, tuple(_still(inside)))
            case _:
                yield block
