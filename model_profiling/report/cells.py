"""A run in a notebook's cell: the answer, what was compared, where the time goes; the rest folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Chart, Code, Folded, Heading, Paragraph
from model_profiling.report.operator_sections import categories, operators
from model_profiling.report.run_report import quality, speedups
from model_profiling.report.verdict import answers


def run_cell(data: ReportData, report: Path | None = None) -> list[Block]:
    """`report` is where the whole page was written."""
    blocks: list[Block] = [
        Heading(data.title, 3),
        *answers(data).opening,
        *(speedups(data) if data.timed else ()),
        *_first_open(categories(data)),
        *_folded("Operators", operators(data)),
        *_folded("Measurement quality", quality(data)),
    ]
    if report is not None:
        blocks.append(Paragraph(("The whole report: ", Code(str(report)))))
    return blocks


def _first_open(blocks: Iterable[Block]) -> Iterator[Block]:
    """The parts of a section: the first as it is, each of the others folded under its heading."""
    parts: list[list[Block]] = [[]]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append([])
        parts[-1].append(block)
    for place, part in enumerate(filter(None, parts)):
        if place and isinstance(part[0], Heading):
            yield from _folded(part[0].text, part[1:])
        else:
            yield from _below(part)


def _below(blocks: Iterable[Block]) -> Iterator[Block]:
    """A section's blocks, its headings one step down: the cell's own is of the third level."""
    for block in blocks:
        yield Heading(block.text, block.level + 1) if isinstance(block, Heading) else block


def _folded(summary: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Details in words and tables: pictures that nobody may open would make a notebook large."""
    inside = tuple(block for block in _below(blocks) if not isinstance(block, Chart))
    if inside:
        yield Folded(summary, inside)
