"""Blocks as Markdown: cells that cannot break a table, names that cannot break a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from model_profiling.printable import printable
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
from model_profiling.wording import MISSING


def render_markdown(blocks: Iterable[Block], pictures: str = "") -> str:
    """`pictures` is the folder, as the page names it, of the charts' files; without one there are none."""
    return printable("\n\n".join(_blocks(blocks, pictures)) + "\n")


def _blocks(blocks: Iterable[Block], pictures: str) -> list[str]:
    return [text for block in blocks if (text := _block(block, pictures))]


def _block(block: Block, pictures: str) -> str:  # noqa: PLR0911  one for each kind
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_one_line(text)}"
        case Paragraph(text):
            return _text(text)
        case Answers(entries):
            return "\n\n".join(f"**{_one_line(question)}** {_text(answer)}" for question, answer in entries)
        case Table():
            return _table(block)
        case Items(entries, numbered):
            return _items(entries, numbered)
        case Commands(lines):
            return "\n".join(("```", *lines, "```"))
        case Figure(file, caption):
            return f"![{_caption(caption)}]({file})"
        case Chart(name, title, summary):
            return f"![{_caption(f'{title}. {summary}')}]({pictures}/{name}.svg)" if pictures else ""
        case Explorer(instead=inside):
            return "\n\n".join(_blocks(inside, pictures))
        case Folded(summary, inside):
            body = "\n\n".join(_blocks(inside, pictures))
            return f"<details><summary>{_one_line(summary)}</summary>\n\n{body}\n\n</details>"


def _items(entries: Sequence[Item], numbered: bool) -> str:
    lines = []
    for number, entry in enumerate(entries, start=1):
        lines.append(f"{f'{number}.' if numbered else '-'} {_text(entry.text)}")
        lines += [f"   - {_text(line)}" for line in entry.inside]
    return "\n".join(lines)


def _table(table: Table) -> str:
    rule = ["---:" if column in table.numbers else "---" for column in range(len(table.headers))]
    headers = [_cell(header) for header in table.headers]
    rows = [[_cell(cell) or MISSING for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))


def _cell(text: Text) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: Text) -> str:
    parts = text if isinstance(text, tuple) else (text,)
    return _one_line("".join(map(_inline, parts)))


def _inline(part: Inline) -> str:
    match part:
        case Code(text):
            return _code(_one_line(text))
        case Strong(text):
            return f"**{text}**"
        case str():
            return part


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _caption(text: str) -> str:
    """What stands for a picture: a name in it must not end it, nor begin anything of its own."""
    return re.sub(r"([\\\[\]<>`])", r"\\\1", _one_line(text))


def _code(text: str) -> str:
    """Text as code, whatever backticks it holds."""
    if not text:
        return ""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
