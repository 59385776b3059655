"""What a page is made of: sections return these blocks, renderers turn them into text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, Literal, TypeVar

_QUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Code:
    """A name to be shown letter by letter."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """Another page of the kit's, by its path from this one; or a place in this page."""

    text: str
    file: str
    anchor: str = ""


Inline = str | Code | Strong | Link
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
    """What a page begins with: questions, each with its answer."""

    entries: tuple[tuple[str, Text], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The columns named in `numbers` stand to the right."""

    headers: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    numbers: tuple[int, ...] = ()
    source: str = ""
    """The file of the run, and the place in it, that the numbers are from."""
    sortable: bool = False
    """Whether a browser sorts it by a click on a header."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a list; `inside` are lines below it."""

    text: Text
    inside: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    entries: tuple[Item, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to be copied."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture beside the page."""

    file: str
    caption: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Numbers as a picture: live in a browser, an SVG file beside a Markdown page, left out of a terminal."""

    name: str
    """What its file is called, without an ending; unique on a page."""
    title: str
    summary: str
    """The same in words, for those who do not see it."""
    spec: Mapping[str, object]
    """Vega-Lite."""
    source: str = ""
    """The file of the run, and the place in it, that the numbers are from."""


@dataclass(frozen=True, slots=True)
class Explorer:
    """Data to sort, filter and open in a browser; elsewhere the blocks `instead`."""

    kind: Literal["operators", "modules", "timeline", "histories"]
    title: str
    """Stands above it in a browser; empty where the section's heading is enough."""
    data: Mapping[str, object]
    """Plain JSON; what each kind holds is written where it is made."""
    instead: tuple[Block, ...] = ()
    source: str = ""
    """As that of a table."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Details that a reader opens."""

    summary: str
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Answers | Table | Items | Commands | Figure | Chart | Explorer | Folded


Row_contra = TypeVar("Row_contra", contravariant=True)
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row_contra]):
    """A column of a table: its heading, and how to read a cell from a record."""

    header: str
    cell: Callable[[Row_contra], Text]


class Number(Column[Row_contra]):
    """A column that stands to the right."""


def table_of(rows: Iterable[Row], columns: Sequence[Column[Row]], *more: Sequence[Text]) -> Table:
    """A row for each record; `more` are rows below."""
    cells = [tuple(column.cell(row) for column in columns) for row in rows]
    right = [place for place, column in enumerate(columns) if isinstance(column, Number)]
    return make_table([column.header for column in columns], [*cells, *more], right)


def make_table(headers: Sequence[str], rows: Iterable[Sequence[Text]], numbers: Iterable[int] = ()) -> Table:
    return Table(tuple(headers), tuple(tuple(row) for row in rows), tuple(numbers))


def make_list(lines: Iterable[Text]) -> list[Block]:
    """A list, or nothing where there is nothing to list."""
    entries = tuple(Item(line) for line in lines)
    return [Items(entries)] if entries else []


def plain(text: Text) -> str:
    """The words alone."""
    parts = text if isinstance(text, tuple) else (text,)
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def in_parts(text: Text) -> Iterator[Inline]:
    """Words and names in turn. Sentences quote commands as Markdown does: those are code."""
    parts = text if isinstance(text, tuple) else (text,)
    for words, run in groupby(parts, key=lambda part: isinstance(part, str)):
        if not words:
            yield from run
            continue
        for place, part in enumerate(_QUOTED.split("".join(map(plain, run)))):
            if part:
                yield Code(part) if place % 2 else part


def charts_in(blocks: Iterable[Block]) -> Iterator[Chart]:
    """Every chart that a page without a browser shows."""
    for block in blocks:
        match block:
            case Chart():
                yield block
            case Explorer(instead=inside) | Folded(blocks=inside):
                yield from charts_in(inside)
