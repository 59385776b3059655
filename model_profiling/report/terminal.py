"""Blocks as plain lines for a terminal: aligned columns without decoration, easy to read and to cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from model_profiling.printable import printable
from model_profiling.report.document import (
    Answers,
    Block,
    Chart,
    Commands,
    Explorer,
    Figure,
    Folded,
    Heading,
    Items,
    Paragraph,
    Table,
    Text,
    plain,
)


def render_terminal(blocks: Iterable[Block]) -> str:
    return printable("\n".join(line for block in blocks for line in _lines(block)))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield from ("", _one_line(text))
        case Paragraph(text):
            yield _one_line(text)
        case Answers(entries):
            for question, answer in entries:
                yield from (question, f"  {_one_line(answer)}")
        case Table():
            yield from table_lines(block)
        case Items(entries, numbered):
            for number, entry in enumerate(entries, start=1):
                yield f"{f'{number}.' if numbered else '-'} {_one_line(entry.text)}"
                yield from (f"   - {_one_line(line)}" for line in entry.inside)
        case Commands(lines):
            yield from (f"  {line}" for line in lines)
        case Figure(file, caption):
            yield _one_line(f"{caption}: {file}")
        case Chart():
            return
        case Explorer(instead=inside):
            yield from (line for within in inside for line in _lines(within))
        case Folded(summary, inside):
            yield _one_line(summary)
            yield from (f"  {line}" for within in inside for line in _lines(within))


def table_lines(table: Table) -> Iterator[str]:
    rows = [table.headers, *(tuple(_one_line(cell) for cell in row) for row in table.rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in table.numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _one_line(text: Text) -> str:
    """Names come from files: a line's end in one ends neither a row nor a sentence."""
    return printable(" ".join(plain(text).split()))
