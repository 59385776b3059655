"""Blocks as HTML: one page that opens from disk."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from importlib.resources import files as resources
from pathlib import Path
from urllib.parse import quote

from model_profiling.core import files
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import MISSING, printable, printable_data
from model_profiling.report import document as doc
from model_profiling.report.charts import VEGA_LITE
from model_profiling.runner.cache import cache_root, cached


def json_text(data: object) -> str:
    """JSON that cannot end the HTML element around it; ASCII, so that its length is its size."""
    text = json.dumps(printable_data(data), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


_NAME = re.compile(r"(\S{18,})")
_BREAKS = re.compile(r"(?<=[A-Za-z0-9][_/])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9]\.)(?=[A-Za-z])")
"""Where a long name may go on in the next line; `breakable` in dom.js says the same."""
_LONG, _LONGER = 28, 40
"""Letters of a table's cell that get a wide column: a name or a sentence is not one word on each line."""


# Each block as HTML. Every text is escaped here; data is in the page as JSON that scripts read.


def block_html(block: doc.Block) -> str:  # noqa: PLR0911  one for each kind
    match block:
        case doc.Heading(text, level):
            return f"<h{level}>{_words(text)}</h{level}>"
        case doc.Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case doc.Answers(entries):
            told = "".join(
                f"<div><dt>{escape(question)}</dt><dd>{_text(answer)}</dd></div>"
                for question, answer in entries
            )
            return f'<dl class="answers">{told}</dl>'
        case doc.ShownTable():
            return _table(block)
        case doc.Items(entries, numbered):
            tag = "ol" if numbered else "ul"
            return f"<{tag}>{''.join(map(_item, entries))}</{tag}>"
        case doc.Commands(lines):
            return f'<pre tabindex="0"><code>{escape(chr(10).join(lines))}</code></pre>'
        case doc.Chart():
            return _chart(block)
        case doc.Explorer():
            return _explorer(block)
        case doc.Folded(summary, inside):
            return f"<details><summary>{escape(summary)}</summary>\n{_blocks(inside)}\n</details>"


def _blocks(blocks: Iterable[doc.Block]) -> str:
    return "\n".join(map(block_html, blocks))


def _chart(chart: doc.Chart) -> str:
    """A picture for those who can see it, its summary for those who cannot, its numbers for both."""
    return (
        f'<figure class="chart" id="chart-{escape(chart.name)}"{_source(chart.source)}>'
        f"<figcaption>{_words(chart.title)}</figcaption>"
        f'<div class="drawing" role="img" aria-label="{escape(chart.summary or chart.title)}"></div>'
        '<details class="numbers"><summary>Show the numbers</summary></details>'
        f'<script type="application/json">{json_text(chart.spec)}</script></figure>'
    )


def _explorer(explorer: doc.Explorer) -> str:
    """Once the script has drawn the data it hides `instead`."""
    return (
        f'<div class="explorer" data-kind="{explorer.kind}" data-title="{escape(explorer.title)}"'
        f"{_source(explorer.source)}>"
        f'<script type="application/json">{json_text(explorer.data)}</script>'
        f'<div class="instead">{_blocks(explorer.instead)}</div></div>'
    )


def _source(source: str) -> str:
    return f' data-source="{escape(source)}"' if source else ""


def _table(table: doc.ShownTable) -> str:
    def cell(column: int, text: doc.Text, tag: str) -> str:
        kind = ' class="number"' if column in table.numbers else ""
        if not kind and len(doc.plain(text)) > _LONG:
            kind = ' class="longer"' if len(doc.plain(text)) > _LONGER else ' class="long"'
        return f"<{tag}{kind}>{_text(text) or MISSING}</{tag.partition(' ')[0]}>"

    head = "".join(cell(column, header, 'th scope="col"') for column, header in enumerate(table.headers))
    rows = "".join(
        f"<tr>{''.join(cell(column, text, 'td') for column, text in enumerate(row))}</tr>\n"
        for row in table.rows
    )
    kind = ' class="sortable"' if table.sortable else ""
    return (
        f'<div class="table"><table{kind}{_source(table.source)}><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _item(entry: doc.Item) -> str:
    inside = "".join(map(_item, entry.entries))
    return f"<li>{_text(entry.text)}{f'<ul>{inside}</ul>' if inside else ''}</li>"


def _text(text: doc.Text) -> str:
    return "".join(map(_inline, doc.in_parts(text)))


def _inline(part: doc.Inline) -> str:
    match part:
        case doc.Code(text):
            return f"<code>{_words(text)}</code>" if text else ""
        case doc.PageLink(text, file):
            address = quote(f"./{file}", errors="backslashreplace")
            return f'<a href="{escape(address)}">{_words(text)}</a>'
        case doc.Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case str():
            return _words(part)


def _words(text: str) -> str:
    parts = (_BREAKS.split(part) if place % 2 else [part] for place, part in enumerate(_NAME.split(text)))
    return "".join("<wbr>".join(map(escape, part)) for part in parts)


# The script that draws charts comes with the vl-convert package, so that no network is needed. Building it
# takes seconds, so it is kept in the kit's cache, by the versions it was made of.

_FILE = "vega.js"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def vega_script() -> str:
    """Return the script, from the cache or newly built."""

    def make(into: Path) -> None:
        files.write_text(into / _FILE, _put_together())

    home = cache_root() / "vega" / f"{version('vl-convert-python')}-{VEGA_LITE}"
    try:
        kept = cached(home, make, "the script that draws charts", fetch=True) / _FILE
        return kept.read_text(encoding="utf-8")
    except (ProfilingError, OSError):
        return _put_together()


def _put_together() -> str:
    import vl_convert

    script: str = vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE)
    # In a page, the text of this end tag ends the script wherever it is.
    return script.replace("</script", "<\\/script")


# A page: a head with the answers, contents, a section for each heading of the second level. All text is
# escaped, and a policy lets only the page's own scripts and styles run: a model named `<script>` is safe.

_STYLES = ("page.css", "blocks.css", "explorers.css")
_SCRIPTS = (
    "dom.js", "page.js", "charts.js", "operators.js", "flame.js", "timeline.js",
)  # fmt: skip
_VEGA = (
    "The charts of this page are drawn by Vega, Vega-Lite and Vega-Embed: Copyright University of Washington "
    "Interactive Data Lab, BSD-3-Clause licence."
)
_CONTENTS_FROM = 3
"""The fewest sections for which a page gets contents."""


@dataclass
class _Section:
    heading: str
    id: str
    blocks: list[doc.Block] = field(default_factory=list)


def render_html(blocks: Iterable[doc.Block], title: str) -> str:
    """One page that carries its styles and scripts; its policy lets nothing else run or load."""
    blocks = list(blocks)
    heading, answers, sections = _parts(blocks, title)
    has_charts = any(True for _ in doc.charts_in(blocks))
    style, own = _static(_STYLES), _static(_SCRIPTS)
    scripts = [vega_script(), own] if has_charts else [own]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    lead = (
        f'<section class="lead" aria-label="In short">\n{_blocks(answers)}\n</section>\n' if answers else ""
    )
    body = (
        '<a class="skip" href="#report">Skip to the report</a>\n'
        f'<header class="top"><h1>{_words(heading)}</h1>'
        '<button type="button" id="theme" hidden>Dark</button></header>\n'
        f'{_contents(sections)}<main id="report" tabindex="-1">\n{lead}'
        + "\n".join(map(_section, sections))
        + "\n</main>\n"
    )
    notice = f"<!-- {_VEGA} -->\n" if has_charts else ""
    loaded = "".join(f'<script type="module">{script}</script>' for script in scripts)
    return (
        f'<!doctype html>\n{notice}<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(printable(title))}</title><style>{style}</style></head>\n"
        f"<body>\n{printable(body)}{loaded}</body></html>\n"
    )


def _static(files: Iterable[str]) -> str:
    folder = resources(__package__).joinpath("static")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in files)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _parts(blocks: Sequence[doc.Block], title: str) -> tuple[str, list[doc.Block], list[_Section]]:
    heading, answers, sections = title, list[doc.Block](), list[_Section]()
    taken: Counter[str] = Counter()
    for block in blocks:
        match block:
            case doc.Heading(text, 1) if not sections and not answers:
                heading = text
            case doc.Heading(text, 1 | 2):
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
    found = dict.fromkeys(source for block in section.blocks for source in _sources(block))
    listed = ", ".join(f"<code>{escape(source)}</code>" for source in found)
    source = f'<p class="source">Numbers from {listed}</p>\n' if found else ""
    return (
        f'<section id="{section.id}" aria-labelledby="{section.id}-h">\n'
        f'<h2 id="{section.id}-h">{_words(section.heading)}</h2>\n{_blocks(section.blocks)}\n'
        f"{source}</section>"
    )


def _sources(block: doc.Block) -> list[str]:
    match block:
        case doc.ShownTable(source=source) | doc.Chart(source=source) | doc.Explorer(source=source):
            return [source] if source else []
        case doc.Folded(blocks=inside):
            return [each for block in inside for each in _sources(block)]
    return []
