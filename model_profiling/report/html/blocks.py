"""Each block as HTML; every text is escaped here, data stands in the page as JSON that scripts read."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

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
    Link,
    Paragraph,
    Strong,
    Table,
    Text,
    in_parts,
)
from model_profiling.report.html.json_text import json_text
from model_profiling.wording import MISSING


def block_html(block: Block) -> str:  # noqa: PLR0911  one for each kind
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_text(text)}</p>"
        case Answers(entries):
            told = "".join(
                f"<div><dt>{escape(question)}</dt><dd>{_text(answer)}</dd></div>"
                for question, answer in entries
            )
            return f'<dl class="answers">{told}</dl>'
        case Table():
            return _table(block)
        case Items(entries, numbered):
            tag = "ol" if numbered else "ul"
            return f"<{tag}>{''.join(map(_item, entries))}</{tag}>"
        case Commands(lines):
            return f'<pre tabindex="0"><code>{escape(chr(10).join(lines))}</code></pre>'
        case Figure(file, caption):
            return f'<figure><img src="{escape(file)}" alt="{escape(caption)}"></figure>'
        case Chart():
            return _chart(block)
        case Explorer():
            return _explorer(block)
        case Folded(summary, inside):
            return f"<details><summary>{escape(summary)}</summary>\n{_blocks(inside)}\n</details>"


def _blocks(blocks: tuple[Block, ...]) -> str:
    return "\n".join(map(block_html, blocks))


def _chart(chart: Chart) -> str:
    """A picture for those who see it, its summary for those who do not, its numbers for both."""
    return (
        f'<figure class="chart" id="chart-{escape(chart.name)}"{_source(chart.source)}>'
        f"<figcaption>{escape(chart.title)}</figcaption>"
        f'<div class="drawing" role="img" aria-label="{escape(chart.summary or chart.title)}"></div>'
        '<details class="numbers"><summary>Show the numbers</summary></details>'
        f'<script type="application/json">{json_text(chart.spec)}</script></figure>'
    )


def _explorer(explorer: Explorer) -> str:
    """The script hides what stands instead once it has drawn the data; charts there are not replaced."""
    charts = "\n".join(_chart(block) for block in explorer.instead if isinstance(block, Chart))
    instead = tuple(block for block in explorer.instead if not isinstance(block, Chart))
    return (
        f"{charts}\n"
        f'<div class="explorer" data-kind="{explorer.kind}" data-title="{escape(explorer.title)}"'
        f"{_source(explorer.source)}>"
        f'<script type="application/json">{json_text(explorer.data)}</script>'
        f'<div class="instead">{_blocks(instead)}</div></div>'
    )


def _source(source: str) -> str:
    return f' data-source="{escape(source)}"' if source else ""


def _table(table: Table) -> str:
    def cell(column: int, text: Text, tag: str) -> str:
        kind = ' class="number"' if column in table.numbers else ""
        return f"<{tag}{kind}>{_text(text) or MISSING}</{tag.partition(' ')[0]}>"

    head = "".join(cell(column, header, 'th scope="col"') for column, header in enumerate(table.headers))
    rows = "".join(
        f"<tr>{''.join(cell(column, text, 'td') for column, text in enumerate(row))}</tr>\n"
        for row in table.rows
    )
    return (
        f'<div class="table"><table{_source(table.source)}><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _item(entry: Item) -> str:
    inside = "".join(f"<li>{_text(line)}</li>" for line in entry.inside)
    return f"<li>{_text(entry.text)}{f'<ul>{inside}</ul>' if inside else ''}</li>"


def _text(text: Text) -> str:
    return "".join(map(_inline, in_parts(text)))


def _inline(part: Inline) -> str:
    match part:
        case Code(text):
            return f"<code>{escape(text)}</code>" if text else ""
        case Link(text, file):
            return f'<a href="{escape(quote(f"./{file}", errors="backslashreplace"))}">{escape(text)}</a>'
        case Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case str():
            return escape(part)
