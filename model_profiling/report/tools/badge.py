"""A run's answer in short: in two words for a shields.io endpoint badge, in Markdown for a GitHub job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from model_profiling.core.formatting import milliseconds
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Code, Folded, Heading, Paragraph, Table, Text
from model_profiling.report.run_report import speedups
from model_profiling.report.tools import write_json
from model_profiling.report.verdict import answers, outputs_differ, sme2_pair
from model_profiling.statistics.speedup import Verdict

FILE = "badge.json"
_COLOURS = {Verdict.FASTER: "brightgreen", Verdict.SLOWER: "red"}


class Badge(NamedTuple):
    """The left text, the right text, and the colour of the right."""

    label: str
    message: str
    color: str = "lightgrey"


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    write_json(folder / FILE, {"schemaVersion": 1, **make_badge(data)._asdict()})
    return (folder / FILE,)


def make_badge(data: ReportData) -> Badge:
    """What SME2 brings, else the latency, else what the kernels prove."""
    switched = sme2_pair(data) if data.timed else None
    if switched is not None:
        found = switched.speedup
        if outputs_differ(data, switched):
            return Badge("SME2", "outputs differ", "red")
        if found.verdict in _COLOURS and found.ratio is not None:
            return Badge("SME2", f"{found.ratio:.2f}x, {found.verdict.value}", _COLOURS[found.verdict])
        return Badge("SME2", found.verdict.value)
    headline = data.headline
    if data.timed and headline and headline.summary:
        traced = headline.latency is None or headline.latency.end_to_end_ms is None
        unlike = "not Arm" if data.is_arm is False else "no SME2" if data.has_sme2 is False else ""
        words = (f"{milliseconds(headline.summary.median)} ms", "traced" if traced else "", unlike)
        return Badge("latency", ", ".join(word for word in words if word), "blue")
    coverage = data.outlook.coverage
    if not coverage.tested or not coverage.operators:
        return Badge("SME2", "not tested")
    proven, every = len(coverage.proven), len(coverage.operators)
    where = ", emulated" if coverage.emulated else ""
    message = f"{proven} of {every} matrix operators{where}"
    return Badge("SME2 kernels", message, "brightgreen" if proven else "orange")


_MOST_ROWS = 30


def run_summary(data: ReportData, report: Path) -> list[Block]:
    table = [_short(block) for block in speedups(data) if isinstance(block, Table)] if data.timed else []
    files = ("Report: ", Code(str(report)), ", files for other tools: ", Code("sme2prof report --for all"))
    return [Heading(data.title, 3), *answers(data).opening(), *table, Paragraph(files)]


def comparison_summary(blocks: Iterable[Block]) -> list[Block]:
    return [_short(block) for block in blocks if not isinstance(block, Folded)]


def _short(block: Block) -> Block:
    match block:
        case Heading():
            return replace(block, level=3)
        case Table(headers, rows) if len(rows) > _MOST_ROWS:
            left: tuple[Text, ...] = (f"{len(rows) - _MOST_ROWS} more in the report",)
            return replace(block, rows=(*rows[:_MOST_ROWS], left + ("",) * (len(headers) - 1)))
    return block
