"""An analysed run for use from Python: its facts, with tables and a page for a notebook cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from model_profiling.analysis.run import RunAnalysis
from model_profiling.report import tables
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, Chart, Code, Folded, Heading, Paragraph
from model_profiling.report.html import render_fragment
from model_profiling.report.operator_sections import categories, first_picture, operators
from model_profiling.report.run_report import quality, speedups
from model_profiling.report.tables import Records
from model_profiling.report.verdict import answers


def run_cell(data: ReportData, report: Path | None = None) -> list[Block]:
    """Return a short report for a notebook cell; `report` is the path of the full page."""
    blocks: list[Block] = [
        Heading(data.title, 3),
        *answers(data).opening(first_picture(data)),
        *(speedups(data) if data.timed else ()),
        *_first_open(categories(data)),
        *_folded("Operators", operators(data)),
        *_folded("Measurement quality", quality(data)),
    ]
    if report is not None:
        blocks.append(Paragraph(("The whole report: ", Code(str(report)))))
    return blocks


def _first_open(blocks: Iterable[Block]) -> Iterator[Block]:
    """Split a section at its headings: leave the first part open and fold each of the others."""
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
    """Move headings one level down: the cell's own heading is level 3."""
    for block in blocks:
        yield Heading(block.text, block.level + 1) if isinstance(block, Heading) else block


def _folded(summary: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Fold words and tables; charts are left out because they would make the notebook large."""
    inside = tuple(block for block in _below(blocks) if not isinstance(block, Chart))
    if inside:
        yield Folded(summary, inside)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AnalysedRun(RunAnalysis):
    """What `analyse` returns. In a notebook it shows itself as a short report.

    Its tables (`categories`, `operators`, `latencies`, `samples`, `speedups`, `category_changes`,
    `operator_changes`) hold the figures of the run's files under the same names; each has `to_pandas()`.
    A row is of one `experiment` at one number of `threads`, or of one `comparison`.

        run = model_profiling.analyse("out_toy_cnn/runs/xnnpack_fp16/linux")
        run.operators.to_pandas().sort_values("ms", ascending=False)
    """

    @property
    def categories(self) -> Records:
        """Where the time goes: `ms` and `pct_of_e2e` of each category and overhead, as in
        `analysis_summary.json`. They add up to the end-to-end time of an experiment, traced."""
        return tables.category_table(self.series)

    @property
    def operators(self) -> Records:
        """Every operator: `ms`, which adds up to its category, and the columns of
        `_exec_operator_details.csv` over all rounds: spread, shapes, cost, module, source line."""
        return tables.operator_table(self.series)

    @property
    def latencies(self) -> Records:
        """What an inference takes without the tracer, as in `metrics.json`; empty without latencies."""
        return tables.latency_table(self.run)

    @property
    def samples(self) -> Records:
        """Every latency without the tracer that counts, by round or launch, as in `_robust_stats.json`."""
        return tables.sample_table(self.run)

    @property
    def speedups(self) -> Records:
        """The answer to every pair that the run compares, as in `metrics.json`."""
        return tables.run_speedups(self)

    @property
    def category_changes(self) -> Records:
        """Each category of each pair, before and after."""
        return tables.category_change_table((pair.label, pair) for pair in self.pairings)

    @property
    def operator_changes(self) -> Records:
        """Each operator of each pair, before and after, with the kernels it used."""
        return tables.operator_change_table((pair.label, pair) for pair in self.pairings)

    def _repr_html_(self) -> str:
        return render_fragment(run_cell(report_data(self.run, self)))


def analysed(facts: RunAnalysis) -> AnalysedRun:
    if isinstance(facts, AnalysedRun):
        return facts
    return AnalysedRun(**{field.name: getattr(facts, field.name) for field in fields(facts)})
