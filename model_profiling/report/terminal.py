"""Blocks as plain lines for a terminal: aligned columns without decoration, easy to read and to cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    plain,
)


def render_terminal(blocks: Iterable[Block]) -> str:
    return "\n".join(line for block in blocks for line in _lines(block))


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading(text):
            yield from ("", text)
        case Paragraph(text):
            yield plain(text)
        case Answers(entries):
            for question, answer in entries:
                yield from (question, f"  {plain(answer)}")
        case Table():
            yield from table_lines(block)
        case Items(entries, numbered):
            for number, entry in enumerate(entries, start=1):
                yield f"{f'{number}.' if numbered else '-'} {plain(entry.text)}"
                yield from (f"   - {plain(line)}" for line in entry.inside)
        case Commands(lines):
            yield from (f"  {line}" for line in lines)
        case Figure(file, caption):
            yield f"{caption}: {file}"
        case Chart():
            return
        case Explorer(instead=inside):
            yield from (line for within in inside for line in _lines(within))
        case Folded(summary, inside):
            yield summary
            yield from (f"  {line}" for within in inside for line in _lines(within))


def table_lines(table: Table) -> Iterator[str]:
    # Names come from files: a line's end in one must not end the row.
    rows = [table.headers, *(tuple(" ".join(plain(cell).split()) for cell in row) for row in table.rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if column in table.numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
