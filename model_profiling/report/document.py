"""The blocks of a page: sections return them, renderers turn them into text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar

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
            case Explorer(instead=inside) | Folded(blocks=inside):
                yield from charts_in(inside)
