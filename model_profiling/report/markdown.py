"""Blocks as Markdown: cells that cannot break a table, names that cannot break a line."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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

Escape = Callable[[str], str]

_BEGINS = re.compile(r"<(?=[A-Za-z/!?])|(?<=\])(?=[(\[:])")


def only_text(text: str) -> str:
    """Words as they are, but nothing in a name becomes an element or a link of the page. Entities rather than
    backslashes: a name may hold backslashes of its own."""
    return _BEGINS.sub(lambda found: "&lt;" if found[0] else "&#8203;", text)


def render_markdown(blocks: Iterable[Block], pictures: str = "", escape: Escape = only_text) -> str:
    """`pictures` is the folder, as the page names it, of the charts' files; without one there are none.
    `escape` is applied to every text that is not code."""
    return printable("\n\n".join(_Page(pictures, escape).blocks(blocks)) + "\n")


@dataclass(frozen=True, slots=True)
class _Page:
    pictures: str
    escape: Escape

    def blocks(self, blocks: Iterable[Block]) -> list[str]:
        return [text for block in blocks if (text := self._block(block))]

    def _block(self, block: Block) -> str:  # noqa: PLR0911  one for each kind
        match block:
            case Heading(text, level):
                return f"{'#' * level} {self._text(text)}"
            case Paragraph(text):
                return self._text(text)
            case Answers(entries):
                return "\n\n".join(
                    f"**{_one_line(asked)}** {self._text(answer)}" for asked, answer in entries
                )
            case Table():
                return self._table(block)
            case Items(entries, numbered):
                return self._items(entries, numbered)
            case Commands(lines):
                fence = _fence("\n".join(lines), 3)
                return "\n".join((fence, *lines, fence))
            case Figure(file, caption):
                return f"![{_caption(caption)}]({file})"
            case Chart(name, title, summary):
                drawn = f"![{_caption(f'{title}. {summary}')}]({self.pictures}/{name}.svg)"
                return drawn if self.pictures else ""
            case Explorer(instead=inside):
                return "\n\n".join(self.blocks(inside))
            case Folded(summary, inside):
                body = "\n\n".join(self.blocks(inside))
                return (
                    f"<details><summary>{html.escape(_one_line(summary))}</summary>\n\n{body}\n\n</details>"
                )

    def _items(self, entries: Sequence[Item], numbered: bool) -> str:
        lines = []
        for number, entry in enumerate(entries, start=1):
            lines.append(f"{f'{number}.' if numbered else '-'} {self._text(entry.text)}")
            lines += [f"   - {self._text(line)}" for line in entry.inside]
        return "\n".join(lines)

    def _table(self, table: Table) -> str:
        rule = ["---:" if column in table.numbers else "---" for column in range(len(table.headers))]
        headers = [self._cell(header) for header in table.headers]
        rows = [[self._cell(cell) or MISSING for cell in row] for row in table.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))

    def _cell(self, text: Text) -> str:
        return self._text(text).replace("|", "\\|")

    def _text(self, text: Text) -> str:
        parts = text if isinstance(text, tuple) else (text,)
        return _one_line("".join(map(self._inline, parts)))

    def _inline(self, part: Inline) -> str:
        match part:
            case Code(text):
                return _code(_one_line(text))
            case Strong(text):
                return f"**{self.escape(text)}**"
            case str():
                return self.escape(part)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _caption(text: str) -> str:
    """What stands for a picture: a name in it must not end it, nor begin anything of its own."""
    return re.sub(r"([\\\[\]<>`])", r"\\\1", _one_line(text))


def _code(text: str) -> str:
    """Text as code, whatever backticks it holds."""
    if not text:
        return ""
    fence = _fence(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _fence(text: str, least: int) -> str:
    """Backticks that `text` cannot end."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    return "`" * max(least, longest + 1)
