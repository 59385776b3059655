"""Blocks as one HTML page: a head with the answers, contents, a section for each heading of the second level.

Everything shown is escaped, and a policy in the page lets only its own scripts and styles run, so a model
named `<script>` is only a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from model_profiling.report.document import Block, Chart, Explorer, Folded, Heading, Table
from model_profiling.report.html.blocks import block_html
from model_profiling.report.html.frame import framed, static_text, with_top
from model_profiling.report.html.vega import vega_script
from model_profiling.run import names

_STYLES = ("page.css", "blocks.css", "explorers.css")
_SCRIPTS = ("dom.js", "page.js", "charts.js", "operators.js", "flame.js", "modules.js", "timeline.js")
_VEGA = (
    "The charts of this page are drawn by Vega, Vega-Lite and Vega-Embed: Copyright University of Washington "
    "Interactive Data Lab, BSD-3-Clause licence."
)
_CONTENTS_FROM = 3
"""How many sections a page has before it gets contents."""


@dataclass
class _Section:
    heading: str
    id: str
    blocks: list[Block] = field(default_factory=list)


def render_html(blocks: Iterable[Block], title: str) -> str:
    blocks = list(blocks)
    heading, answers, sections = _parts(blocks, title)
    style = static_text(_STYLES)
    drawn = any(map(_has_chart, blocks))
    scripts = [*([vega_script()] if drawn else []), static_text(_SCRIPTS)]
    notice = f"<!-- {_VEGA} -->\n" if drawn else ""
    lead = "\n".join(map(block_html, answers))
    shown = (
        f'<section class="lead" aria-label="In short">\n{lead}\n</section>\n' if lead else ""
    ) + "\n".join(map(_section, sections))
    body = with_top(heading, shown, _contents(sections))
    return framed(title, body, style=style, scripts=scripts, also="img-src data:", notice=notice)


def _parts(blocks: Sequence[Block], title: str) -> tuple[str, list[Block], list[_Section]]:
    """The page's heading, what stands before the first section, and the sections."""
    heading, answers, sections = title, list[Block](), list[_Section]()
    taken: Counter[str] = Counter()
    for block in blocks:
        match block:
            case Heading(text, 1) if not sections and not answers:
                heading = text
            case Heading(text, 1 | 2):
                name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
                taken[name] += 1
                sections.append(_Section(text, name if taken[name] == 1 else f"{name}-{taken[name]}"))
            case _ if sections:
                sections[-1].blocks.append(block)
            case _:
                answers.append(block)
    return heading, answers, sections


def _contents(sections: Sequence[_Section]) -> str:
    if len(sections) < _CONTENTS_FROM:
        return ""
    entries = "".join(
        f'<li><a href="#{section.id}">{escape(section.heading)}</a></li>' for section in sections
    )
    return f'<nav class="contents" aria-label="Contents"><ol>{entries}</ol></nav>\n'


def _section(section: _Section) -> str:
    body = "\n".join(map(block_html, section.blocks))
    found = dict.fromkeys(source for block in section.blocks for source in _sources(block))
    source = f'<p class="source">Numbers from {_listed(found)}</p>\n' if found else ""
    return (
        f'<section id="{section.id}" aria-labelledby="{section.id}-h">\n'
        f'<h2 id="{section.id}-h">{escape(section.heading)}</h2>\n{body}\n{source}</section>'
    )


def _listed(sources: Iterable[str]) -> str:
    return ", ".join(f"<code>{escape(source)}</code>" for source in sources)


def _sources(block: Block) -> list[str]:
    """The files that a block's numbers are from."""
    match block:
        case Table(source=source) | Chart(source=source):
            return _files(source)
        case Explorer(source=source, instead=inside):
            return [*_files(source), *(each for block in inside for each in _sources(block))]
        case Folded(blocks=inside):
            return [each for block in inside for each in _sources(block)]
    return []


def _files(source: str) -> list[str]:
    """The files that a source names; those of several series by what they have in common."""
    named = re.sub(r"[#:] ?.*$", "", source).removeprefix("the files ").split(", ") if source else []
    return [f"*{names.ROBUST_STATS}" if name.endswith(names.ROBUST_STATS) else name for name in named]


def _has_chart(block: Block) -> bool:
    match block:
        case Chart():
            return True
        case Explorer(instead=inside) | Folded(blocks=inside):
            return any(map(_has_chart, inside))
    return False
