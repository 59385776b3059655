"""Blocks as one HTML page. Everything shown is escaped here, and a policy in the page lets only its own
scripts and styles run, so a model named `<script>` is only a name.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files as resources

from model_profiling.report.document import (
    Answers,
    Block,
    Chart,
    Code,
    Commands,
    Explorer,
    Figure,
    Folded,
    Heading,
    Inline,
    Item,
    Items,
    Paragraph,
    Strong,
    Table,
    Text,
)
from model_profiling.report.html.vega import vega_script
from model_profiling.wording import MISSING


def render_html(blocks: Iterable[Block], title: str) -> str:
    shown = list(blocks)
    style, own = (_static(name) for name in ("report.css", "report.js"))
    scripts = [vega_script(), own]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    body = "\n".join(map(_block, shown))
    loaded = "".join(f'<script type="module">{script}</script>' for script in scripts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main>'
        f"{loaded}</body></html>\n"
    )


def _static(name: str) -> str:
    return resources(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _block(block: Block) -> str:  # noqa: PLR0911  one for each kind
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Answers(entries):
            told = "".join(
                f"<dt>{escape(question)}</dt><dd>{_text(answer)}</dd>" for question, answer in entries
            )
            return f'<dl class="answers">{told}</dl>'
        case Table():
            return _table(block)
        case Items(entries, numbered):
            tag = "ol" if numbered else "ul"
            return f"<{tag}>{''.join(map(_item, entries))}</{tag}>"
        case Commands(lines):
            return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"
        case Figure(file, caption):
            return f'<figure><img src="{escape(file)}" alt="{escape(caption)}"></figure>'
        case Chart():
            return _chart(block)
        case Explorer(instead=inside):
            return "\n".join(map(_block, inside))
        case Folded(summary, inside):
            body = "\n".join(map(_block, inside))
            return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def _chart(chart: Chart) -> str:
    return (
        f'<figure class="chart" id="chart-{escape(chart.name)}">'
        f"<figcaption>{escape(chart.title)}</figcaption>"
        f'<div class="drawing" role="img" aria-label="{escape(chart.summary)}"></div>'
        f'<script type="application/json">{_json(chart.spec)}</script></figure>'
    )


def _json(data: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in table.headers)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="number">{_text(cell) or MISSING}</td>'
            if column in table.numbers
            else f"<td>{_text(cell) or MISSING}</td>"
            for column, cell in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _item(entry: Item) -> str:
    inside = "".join(f"<li>{_text(line)}</li>" for line in entry.inside)
    return f"<li>{_text(entry.text)}{f'<ul>{inside}</ul>' if inside else ''}</li>"


def _text(text: Text) -> str:
    parts = text if isinstance(text, tuple) else (text,)
    return "".join(map(_inline, parts))


def _inline(part: Inline) -> str:
    match part:
        case Code(text):
            return f"<code>{escape(text)}</code>" if text else ""
        case Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case str():
            return escape(part)
