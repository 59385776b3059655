"""A job's summary on GitHub: the answers, the speedups and the names of the files, in short Markdown.

GitHub renders it, so every text that is not code is escaped: a name is never a link, a picture or a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.report.comparison import Comparison
from model_profiling.report.comparison_document import comparison_document
from model_profiling.report.data import ReportData
from model_profiling.report.document import (
    Answers,
    Block,
    Code,
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
from model_profiling.report.markdown import render_markdown
from model_profiling.report.run_report import speedups
from model_profiling.report.verdict import answers

_MOST_ROWS = 30
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&#!@])")


def run_summary(data: ReportData, report: Path) -> list[Block]:
    """A run: what its report opens with, and where it is."""
    table = [_short(block) for block in speedups(data) if isinstance(block, Table)] if data.timed else []
    files = ("Report: ", Code(str(report)), ", files for other tools: ", Code("sme2prof report --for all"))
    return [Heading(data.title, 3), *answers(data).opening, *table, Paragraph(files)]


def comparison_summary(comparison: Comparison) -> list[Block]:
    """A comparison without its folded details."""
    shown = [block for block in comparison_document(comparison) if not isinstance(block, Folded)]
    return [_short(block) if isinstance(block, Table) else _lower(block) for block in shown]


def render_summary(blocks: Iterable[Block]) -> str:
    """Markdown in which texts are only texts."""
    return render_markdown([_escaped(block) for block in blocks])


def _lower(block: Block) -> Block:
    return replace(block, level=3) if isinstance(block, Heading) else block


def _short(table: Table) -> Table:
    if len(table.rows) <= _MOST_ROWS:
        return table
    left: tuple[Text, ...] = (f"{len(table.rows) - _MOST_ROWS} more in the report",)
    return replace(table, rows=(*table.rows[:_MOST_ROWS], left + ("",) * (len(table.headers) - 1)))


def _escaped(block: Block) -> Block:
    match block:
        case Heading(text):
            return replace(block, text=_plain(text))
        case Paragraph(text):
            return Paragraph(_text(text))
        case Answers(entries):
            return Answers(tuple((question, _text(answer)) for question, answer in entries))
        case Table(headers, rows):
            cells = tuple(tuple(_text(cell) for cell in row) for row in rows)
            return replace(block, headers=tuple(map(_plain, headers)), rows=cells)
        case Items(entries):
            return replace(block, entries=tuple(_item(entry) for entry in entries))
        case _:
            return block


def _item(entry: Item) -> Item:
    return Item(_text(entry.text), _texts(entry.inside))


def _texts(lines: Sequence[Text]) -> tuple[Text, ...]:
    return tuple(_text(line) for line in lines)


def _text(text: Text) -> Text:
    return tuple(map(_inline, text)) if isinstance(text, tuple) else _inline(text)


def _inline(part: Inline) -> Inline:
    match part:
        case Code():
            return part
        case Strong(text):
            return Strong(_plain(text))
        case str():
            return _plain(part)


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).replace("://", ":\u200b//")
