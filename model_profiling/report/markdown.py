"""Blocks as Markdown: cells that cannot break a table, names that cannot break a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    Link,
    Paragraph,
    Strong,
    Table,
    Text,
    in_parts,
    plain,
)
from model_profiling.report.markdown_text import (
    code,
    fence,
    html_text,
    line_start,
    link,
    only_text,
    picture,
    strong,
)
from model_profiling.wording import MISSING


def render_markdown(blocks: Iterable[Block], pictures: str = "") -> str:
    """`pictures` is the folder, as the page names it, of the charts' files; without one there are none."""
    return printable("\n\n".join(_Page(pictures).blocks(blocks)) + "\n")


@dataclass(frozen=True, slots=True)
class _Page:
    pictures: str

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
                    f"{strong(_one_line(asked))} {_words(answer)}" for asked, answer in entries
                )
            case Table():
                return self._table(block)
            case Items(entries, numbered):
                return self._items(entries, numbered)
            case Commands(lines):
                around = fence("\n".join(lines))
                return "\n".join((around, *lines, around))
            case Figure(file, caption):
                return picture(_one_line(caption), file)
            case Chart(name, title, summary):
                drawn = picture(_one_line(f"{title}. {summary}"), f"{self.pictures}/{name}.svg")
                return drawn if self.pictures else ""
            case Explorer(instead=inside):
                return "\n\n".join(self.blocks(inside))
            case Folded(summary, inside):
                body = "\n\n".join(self.blocks(inside))
                return f"<details><summary>{html_text(_one_line(summary))}</summary>\n\n{body}\n\n</details>"

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
        return _words(text).replace("|", "\\|")

    def _text(self, text: Text) -> str:
        return line_start(_words(text))


def _words(text: Text) -> str:
    parts = ["", *in_parts(text), ""]
    return _one_line("".join(map(_inline, parts, parts[1:-1], parts[2:])))


def _inline(before: Inline, part: Inline, after: Inline) -> str:
    match part:
        case Code(text):
            return code(_one_line(text))
        case Link(text, file):
            return link(_one_line(text), file)
        case Strong(text):
            return strong(_one_line(text), plain(before), plain(after))
        case str():
            return only_text(part)


def _one_line(text: str) -> str:
    return " ".join(text.split())
