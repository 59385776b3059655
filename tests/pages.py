"""Reads a report's blocks back, so that tests ask for figures and not for sentences."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from model_profiling.report.document import (
    Block,
    Explorer,
    Folded,
    Heading,
    Items,
    Paragraph,
    ShownTable,
    plain,
)


def as_read(blocks: Sequence[Block]) -> list[Block]:
    """What a page without a browser shows, folded parts opened."""
    shown: list[Block] = []
    for block in blocks:
        if isinstance(block, Explorer):
            shown += as_read(block.instead)
        elif isinstance(block, Folded):
            shown += as_read(block.blocks)
        else:
            shown.append(block)
    return shown


def headings(blocks: Sequence[Block]) -> list[str]:
    """Of the sections, in order."""
    return [block.text for block in blocks if isinstance(block, Heading) and block.level == 2]


def section(blocks: Sequence[Block], heading: str) -> list[Block]:
    """The blocks below a heading; empty where there is none."""
    inside, found = False, []
    for block in as_read(blocks):
        if isinstance(block, Heading) and block.level <= 2:
            inside = block.text == heading
        elif inside:
            found.append(block)
    return found


def tables(blocks: Sequence[Block], *headers: str) -> list[list[list[str]]]:
    """The cells of every table whose columns begin with `headers`."""
    return [
        [[plain(cell) for cell in row] for row in block.rows]
        for block in as_read(blocks)
        if isinstance(block, ShownTable) and block.headers[: len(headers)] == headers
    ]


def table(blocks: Sequence[Block], *headers: str) -> list[list[str]]:
    (found,) = tables(blocks, *headers)
    return found


def lines(blocks: Sequence[Block]) -> list[str]:
    """Paragraphs and entries of lists."""
    found = []
    for block in as_read(blocks):
        if isinstance(block, Paragraph):
            found.append(plain(block.text))
        elif isinstance(block, Items):
            found += [plain(entry.text) for entry in block.entries]
    return found


def assert_harmless(text: str) -> None:
    """Nothing in it that a terminal would obey, or that deceives a reader."""
    seen = {unicodedata.category(character) for character in text if character not in "\n\t"}
    assert not seen & {"Cc", "Cf", "Cs", "Zl", "Zp"}, repr(text)
