"""The summary of a GitHub job: the answers, the speedups and the names of the files, in short Markdown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model_profiling.report.comparison_document import Comparison, comparison_document
from model_profiling.report.data import ReportData
from model_profiling.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Paragraph,
    Table,
    Text,
)
from model_profiling.report.run_report import speedups
from model_profiling.report.verdict import answers

_MOST_ROWS = 30


def run_summary(data: ReportData, report: Path) -> list[Block]:
    table = [_short(block) for block in speedups(data) if isinstance(block, Table)] if data.timed else []
    files = ("Report: ", Code(str(report)), ", files for other tools: ", Code("sme2prof report --for all"))
    return [Heading(data.title, 3), *answers(data).opening(), *table, Paragraph(files)]


def comparison_summary(comparison: Comparison) -> list[Block]:
    shown = [block for block in comparison_document(comparison) if not isinstance(block, Folded)]
    return [_short(block) if isinstance(block, Table) else _lower(block) for block in shown]


def _lower(block: Block) -> Block:
    return replace(block, level=3) if isinstance(block, Heading) else block


def _short(table: Table) -> Table:
    if len(table.rows) <= _MOST_ROWS:
        return table
    left: tuple[Text, ...] = (f"{len(table.rows) - _MOST_ROWS} more in the report",)
    return replace(table, rows=(*table.rows[:_MOST_ROWS], left + ("",) * (len(table.headers) - 1)))
