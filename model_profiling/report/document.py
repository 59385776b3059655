"""The blocks of a page, which sections return; and their renderers for Markdown and for a terminal."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar
from urllib.parse import quote

from model_profiling.core.formatting import MISSING, printable

_QUOTED = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Code:
    """A name or command shown verbatim."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    text: str


@dataclass(frozen=True, slots=True)
class PageLink:
    """A link to another page of the kit, by its path from this one."""

    text: str
    file: str


Inline = str | Code | Strong | PageLink
Text = Inline | tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: Text


@dataclass(frozen=True, slots=True)
class Answers:
    """The questions and answers at the top of a page."""

    entries: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table; the columns with indexes in `numbers` are aligned right."""

    headers: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    numbers: tuple[int, ...] = ()
    source: str = ""
    """The file of the run, and the place in it, that the numbers come from."""
    sortable: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list; `inside` are the lines, or entries with lines of their own, below it."""

    text: Text
    inside: tuple[Text | Item, ...] = ()

    @property
    def entries(self) -> tuple[Item, ...]:
        return tuple(line if isinstance(line, Item) else Item(line) for line in self.inside)


@dataclass(frozen=True, slots=True)
class Items:
    entries: tuple[Item, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Commands:
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: live in a browser, an SVG file beside a Markdown page, left out in a terminal."""

    name: str
    """Its file name without the extension; unique on a page."""
    title: str
    summary: str
    """The same in words, for readers who cannot see it."""
    spec: Mapping[str, object]
    """A Vega-Lite specification."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Explorer:
    """Data to sort, filter and open in a browser; other pages show the blocks in `instead`."""

    kind: Literal["operators", "timeline"]
    title: str
    """Shown above it in a browser; empty if the section's heading is enough."""
    data: Mapping[str, object]
    """Plain JSON; the code that builds each kind describes it."""
    instead: tuple[Block, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Answers | ShownTable | Items | Commands | Chart | Explorer | Folded


Row_contra = TypeVar("Row_contra", contravariant=True)
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[Row_contra]):
    header: str
    cell: Callable[[Row_contra], Text]


class Number(TableColumn[Row_contra]):
    """A column aligned right."""


def table_of(rows: Iterable[Row], columns: Sequence[TableColumn[Row]], *more: Sequence[Text]) -> ShownTable:
    """Return a table with a row for each record, then the rows `more`."""
    cells = [tuple(column.cell(row) for column in columns) for row in rows]
    right = [place for place, column in enumerate(columns) if isinstance(column, Number)]
    return make_table([column.header for column in columns], [*cells, *more], right)


def make_table(
    headers: Sequence[str], rows: Iterable[Sequence[Text]], numbers: Iterable[int] = ()
) -> ShownTable:
    return ShownTable(tuple(headers), tuple(tuple(row) for row in rows), tuple(numbers))


def make_list(lines: Iterable[Text]) -> list[Block]:
    """Return a list, or nothing if there are no lines."""
    entries = tuple(Item(line) for line in lines)
    return [Items(entries)] if entries else []


def plain(text: Text) -> str:
    """Return the text without markup."""
    parts = text if isinstance(text, tuple) else (text,)
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def in_parts(text: Text) -> Iterator[Inline]:
    """Yield the parts of a text; words in backquotes become `Code`."""
    parts = text if isinstance(text, tuple) else (text,)
    for words, run in groupby(parts, key=lambda part: isinstance(part, str)):
        if not words:
            yield from run
            continue
        for place, part in enumerate(_QUOTED.split("".join(map(plain, run)))):
            if part:
                yield Code(part) if place % 2 else part


def charts_in(blocks: Iterable[Block]) -> Iterator[Chart]:
    """Yield every chart that a page shows without a browser."""
    for block in blocks:
        match block:
            case Chart():
                yield block
            case Folded(blocks=inside):
                yield from charts_in(inside)


# Blocks as Markdown and as plain lines for a terminal.

# Text as Markdown: names from files must stay text.
# A name never becomes an element, attribute, link, image, heading, list or mention, not even on GitHub. Text
# without meaning in Markdown stays as it is, so that a page also reads well unrendered.

# A zero-width space: it breaks what GitHub would turn into a link in the finished page.
_NO_WIDTH = "&#8203;"
# URLs, issue numbers, people and mail addresses, but not `model@size=8`.
_LINKED = r"(?P<linked>:(?=//)|\bwww\.|#(?=\d)|(?<!\w)@(?=[A-Za-z0-9])|(?<=[\w.+-])@(?=[\w-]+\.))"
_MEANT = re.compile(
    r"(?P<marked>[\\*~`]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_]))"  # a_b is not emphasis
    r"|(?P<element><(?=[A-Za-z/!?]))"
    r"|(?P<entity>&(?=#?[A-Za-z0-9]+;))"
    r"|(?P<formula>\$)"
    rf"|{_LINKED}",
    re.IGNORECASE,
)
_LINK = re.compile(_LINKED, re.IGNORECASE)
_BLOCK = re.compile(r"[-+](?=\s|$)|-(?=[- \t]*$)|#{1,6}(?=\s|$)|>|\[(?=[ xX]\])|\d{1,9}(?=[.)](?:\s|$))")
_END_OF_HEADING = re.compile(r"(?<!\S)(?=#+$)")
_IN_CAPTION = re.compile(r"([\\\[\]<>`*~&])")


def only_text(text: str) -> str:
    """Escape text inside a line."""
    return _MEANT.sub(_harmless, text)


def _harmless(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "marked":
            return f"\\{found[0]}"
        case "element":
            return "&lt;"
        case "entity":
            return "&amp;"
        case "formula":
            return "&#36;"
    return f"{found[0]}{_NO_WIDTH}"


def line_start(text: str) -> str:
    """Escape a line so that it starts no list, heading or quotation and ends no heading."""
    begins = _BLOCK.match(text)
    if begins:
        # The point after a number would make it a list item.
        text = f"{begins[0]}\\{text[begins.end() :]}" if begins[0].isdecimal() else f"\\{text}"
    return _END_OF_HEADING.sub(lambda _: "\\", text, count=1)


def code(text: str) -> str:
    """Return text as code, even if it contains backticks."""
    if not text:
        return ""
    ticks = fence(text, 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def fence(text: str, least: int = 3) -> str:
    """Return more backticks than `text` contains in a row."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    return "`" * max(least, longest + 1)


def link(text: str, file: str) -> str:
    """Link to another page; its text cannot end the link."""
    return picture(text, file).removeprefix("!")


def picture(caption: str, file: str) -> str:
    words = _IN_CAPTION.sub(r"\\\1", caption)
    address = quote(file, errors="backslashreplace")
    return f"![{words}]({address})"


def render_markdown(blocks: Iterable[Block], pictures: str = "") -> str:
    """`pictures` is the folder of the chart files, relative to the page; if empty, charts are left out."""
    return printable("\n\n".join(_blocks(blocks, pictures)) + "\n")


def _blocks(blocks: Iterable[Block], pictures: str) -> list[str]:
    return [text for block in blocks if (text := _block(block, pictures))]


def _block(block: Block, pictures: str) -> str:  # noqa: PLR0911  one for each kind
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_text(text)}"
        case Paragraph(text):
            return _text(text)
        case Answers(entries):
            return "\n\n".join(f"{_words(Strong(asked))} {_words(answer)}" for asked, answer in entries)
        case ShownTable():
            return _table(block)
        case Items():
            return "\n".join(item_lines(block, _text))
        case Commands(lines):
            around = fence("\n".join(lines))
            return "\n".join((around, *lines, around))
        case Chart(name, title, summary):
            drawn = picture(_one_line(f"{title}. {summary}"), f"{pictures}/{name}.svg")
            return drawn if pictures else ""
        case Explorer(instead=inside):
            return "\n\n".join(_blocks(inside, pictures))
        case Folded(summary, inside):
            body = "\n\n".join(_blocks(inside, pictures))
            text = _LINK.sub(lambda found: f"{found[0]}{_NO_WIDTH}", html.escape(_one_line(summary)))
            return f"<details><summary>{text}</summary>\n\n{body}\n\n</details>"


def _table(table: ShownTable) -> str:
    rule = ["---:" if column in table.numbers else "---" for column in range(len(table.headers))]
    headers = [_cell(header) for header in table.headers]
    rows = [[_cell(cell) or MISSING for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))


def _cell(text: Text) -> str:
    return _words(text).replace("|", "\\|")


def _text(text: Text) -> str:
    return line_start(_words(text))


def _words(text: Text) -> str:
    return _one_line("".join(map(_inline, in_parts(text))))


def _inline(part: Inline) -> str:
    match part:
        case Code(text):
            return code(_one_line(text))
        case PageLink(text, file):
            return link(_one_line(text), file)
        case Strong(text):  # at the start of a line and before a space, a point or a colon: nowhere else
            return f"**{only_text(_one_line(text))}**"
        case str():
            return only_text(part)


def item_lines(items: Items, words: Callable[[Text], str]) -> Iterator[str]:
    for number, entry in enumerate(items.entries, start=1):
        yield f"{f'{number}.' if items.numbered else '-'} {words(entry.text)}"
        yield from (f"   {line}" for line in item_lines(Items(entry.entries), words))


def _one_line(text: str) -> str:
    return " ".join(text.split())


# Blocks as plain lines for a terminal: aligned columns without decoration.


def render_terminal(blocks: Iterable[Block]) -> str:
    return printable("\n".join(line for block in blocks for line in _lines(block)))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield from ("", _terminal_line(text))
        case Paragraph(text):
            yield _terminal_line(text)
        case Answers(entries):
            for question, answer in entries:
                yield from (question, f"  {_terminal_line(answer)}")
        case ShownTable():
            yield from table_lines(block)
        case Items():
            yield from item_lines(block, _terminal_line)
        case Commands(lines):
            yield from (f"  {line}" for line in lines)
        case Chart():
            return
        case Explorer(instead=inside):
            yield from (line for within in inside for line in _lines(within))
        case Folded(summary, inside):
            yield _terminal_line(summary)
            yield from (f"  {line}" for within in inside for line in _lines(within))


def table_lines(table: ShownTable) -> Iterator[str]:
    rows = [table.headers, *(tuple(_terminal_line(cell) for cell in row) for row in table.rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in table.numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _terminal_line(text: Text) -> str:
    """Names come from files: a line break in one must not end a row or a sentence."""
    return printable(" ".join(plain(text).split()))
