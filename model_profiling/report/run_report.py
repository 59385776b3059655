"""A run as a page: the answers and one chart, then what to do, operators, SME2, latency, how sure, reproduce.

Empty sections are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.core.formatting import MISSING, milliseconds
from model_profiling.report.cells import series_columns
from model_profiling.report.data import ReportData
from model_profiling.report.document import (
    Block,
    Code,
    Commands,
    Explorer,
    Folded,
    Heading,
    Paragraph,
    Table,
    Text,
    make_list,
    make_table,
)
from model_profiling.report.evidence_sections import advice, parity, sme2
from model_profiling.report.latency_section import how_measured, latency, latency_section, speedups
from model_profiling.report.operator_sections import (
    categories,
    first_picture,
    longest_operators_table,
    operators,
)
from model_profiling.report.verdict import answers

# A page of 1,000 series would help nobody; its figures are in the files.

MOST_SERIES = 32


Section = Callable[[ReportData], Sequence[Block]]


def run_document(data: ReportData) -> list[Block]:
    """Return the page; of a run with more than `MOST_SERIES` series, only what its answers and lists say."""
    picture = first_picture(data)
    blocks: list[Block] = [Heading(data.title, 1), answers(data).block, *([picture] if picture else [])]
    if many := len(data.experiments) > MOST_SERIES:
        where = f"{names.METRICS}, {names.ANALYSIS} and the CSV files beside each dump"
        blocks.append(
            Paragraph(f"{len(data.experiments):,} series are too many for tables and charts: see {where}.")
        )
    for heading, section, source in _SECTIONS:
        if (not many or section in _SHORT) and (body := section(data)):
            blocks += [Heading(heading), *_from(source, body)]
    return blocks


def _from(source: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """Set the source of every table that has none."""
    for block in blocks:
        match block:
            case Table(source=""):
                yield replace(block, source=source)
            case Folded(blocks=inside):
                yield replace(block, blocks=tuple(_from(source, inside)))
            case Explorer(instead=inside):
                yield replace(block, instead=tuple(_from(source, inside)))
            case _:
                yield block


def how_sure(data: ReportData) -> list[Block]:
    """Show reasons to doubt the figures, what else is known, whether outputs agree, and what is missing."""
    doubts = [line.text for line in data.warnings]
    if not doubts and data.timed:
        doubts = ["Nothing seen that would make the measurement doubtful."]
    missing = make_list(data.gaps)
    return [
        *make_list((*doubts, *answers(data).notes)),
        *parity(data),
        *([Paragraph("What this report cannot show:"), *missing] if missing else []),
    ]


def reproduce(data: ReportData) -> list[Block]:
    *measured, report = data.reproduce
    blocks: list[Block] = [
        Paragraph("Measure again:" if measured else "The command that measured this run is not recorded."),
        *([Commands(tuple(measured))] if measured else []),
        Paragraph("Write this page again from the recorded measurements:"),
        Commands((report,)),
    ]
    if data.facts:
        machine = replace(make_table(("what", "value"), data.facts), source=names.MANIFEST)
        blocks.append(Folded("Machine and versions", (machine,)))
    return blocks


_SECTIONS: tuple[tuple[str, Section, str], ...] = (
    ("What to do next", advice, names.ANALYSIS),
    ("Operators", operators, names.ANALYSIS),
    ("SME2", sme2, names.ANALYSIS),
    ("Latency", latency_section, names.METRICS),
    ("How sure", how_sure, names.METRICS),
    ("How to reproduce", reproduce, ""),
)
"""Heading, section, and the file that its numbers come from."""
_SHORT = (advice, how_sure, reproduce)
"""The sections that are short whatever a run holds."""


def summary_document(data: ReportData) -> list[Block]:
    manifest = data.run.manifest
    assert manifest is not None
    latencies = data.run.metrics.latencies if data.run.metrics else ()
    measured = how_measured(manifest.schedule, latencies)
    circumstances = (
        f"CPU: {data.cpu}",
        f"ExecuTorch: {manifest.executorch.version}",
        f"state: {manifest.unfinished or 'finished'}",
        *([measured] if measured else []),
    )
    noticed = make_list(line.text for line in data.warnings)
    measured_ms = latency(data)
    return [
        Heading(data.title, 1),
        *answers(data).opening(),
        *([Heading("Latency"), *measured_ms] if measured_ms else []),
        Heading("Circumstances"),
        *make_list(circumstances),
        *([Heading("Warnings"), *noticed] if noticed else []),
    ]


def ladder_table(data: ReportData) -> Table:
    """The ablation ladder: the kernels that ran at each rung, and the speedup from its best feature."""
    ran = {
        found.series: ", ".join(f"{count} {isa}" for isa, count in found.instruction_sets.items())
        for found in data.evidence[0].kernels
    }
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs}
    named = series_columns(data.run.series)
    headers: tuple[str, ...] = (*(column.header for column in named), "kernels that ran")
    if data.timed:
        headers += ("median ms", "buys", "verdict")
    rows = []
    for found in data.experiments:
        kernels = (
            f"failed: {found.problem}" if found.problem else ran.get(found.series) or "no KleidiAI kernel"
        )
        row: tuple[Text, ...] = (*(column.cell(found) for column in named), kernels)
        if data.timed:
            gain = gains.get(found.series)
            buys = MISSING if gain is None or gain.ratio is None else f"{gain.ratio:.2f}x"
            if gain is not None and gain.low is not None and gain.high is not None:
                buys += f" [{gain.low:.2f}, {gain.high:.2f}]"
            median = found.summary.median if found.summary else None
            row += (milliseconds(median), buys, gain.verdict.value if gain else "")
        rows.append(row)
    return make_table(headers, rows)


# A short report for a notebook cell.


def run_cell(data: ReportData, report: Path | None = None) -> list[Block]:
    """Return a short report for a notebook cell; `report` is the path of the full page."""
    folded = {
        "Operators": longest_operators_table(data),
        "How sure": make_list(line.text for line in data.warnings),
    }
    return [
        Heading(data.title, 3),
        *answers(data).opening(first_picture(data)),
        *(speedups(data) if data.timed else ()),
        *categories(data),
        *(Folded(summary, tuple(blocks)) for summary, blocks in folded.items() if blocks),
        *([Paragraph(("The whole report: ", Code(str(report))))] if report is not None else []),
    ]
