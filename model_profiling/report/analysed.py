"""An analysed run as people use it from Python: its facts, with tables and a page for a notebook's cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis, pair_answer
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.facts.operators import OperatorRow, Value, cells
from model_profiling.report.columns import (
    CATEGORIES,
    CATEGORY_CHANGES,
    LATENCIES,
    OPERATOR_CHANGES,
    OPERATORS,
    SAMPLES,
    SPEEDUPS,
    Records,
)
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, Chart, Code, Folded, Heading, Paragraph
from model_profiling.report.html.page import render_fragment
from model_profiling.report.operator_sections import categories, first_picture, operators
from model_profiling.report.run_report import quality, speedups
from model_profiling.report.verdict import answers
from model_profiling.run import Latency, Run, Series
from model_profiling.run.metrics import PairSpeedup
from model_profiling.statistics.speedup import Speedup

# A run in a notebook's cell: the answer, what was compared, where the time goes; the rest folded.


def run_cell(data: ReportData, report: Path | None = None) -> list[Block]:
    """`report` is where the whole page was written."""
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


# The figures of a run and of its comparisons as tables; values and names are those of the run's own files.
# Times are missing where they mean nothing (`Times.are_shown`), as in the reports.


def category_table(series: Iterable[SeriesAnalysis]) -> Records:
    return Records.of(CATEGORIES, (row for found in series for row in _categories(found)))


def _categories(series: SeriesAnalysis) -> Iterator[tuple[Value, ...]]:
    counts = Counter(operator.category.value for operator in series.operators)
    known = {category.value for category in series.breakdown.categories}
    for name, part in series.parts.items():
        spent = series.spent(part)
        figures = (spent.ms, 100 * spent.share) if series.times.are_shown else (None, None)
        yield *_traced(series), name, *figures, counts[name] if name in known else None


def operator_table(series: Iterable[SeriesAnalysis]) -> Records:
    return Records.of(OPERATORS, (row for found in series for row in _operators(found)))


def _operators(series: SeriesAnalysis) -> Iterator[tuple[Value, ...]]:
    timed = series.times.are_shown
    for operator in series.operators:
        row = OperatorRow(operator, operator.typical_ms, series.spent_by([operator]).share)
        yield *_traced(series), row.ms if timed else None, *cells(row, timed=timed)


def latency_table(run: Run) -> Records:
    found = run.metrics.latencies if run.metrics else ()
    timed = (latency for latency in found if run.times_of(latency.series).are_latencies)
    return Records.of(LATENCIES, (_latency(latency, run.sme2_of(latency.series)) for latency in timed))


def _latency(latency: Latency, sme2: bool | None) -> tuple[Value, ...]:
    whole, traced, cost = latency.end_to_end_ms, latency.traced_ms, latency.tracer_cost
    figures: tuple[Value, ...] = (
        (whole.median, whole.mean, whole.p5, whole.p95, whole.minimum, whole.maximum, whole.robust_cv)
        if whole
        else (None,) * 7
    )
    return (
        latency.experiment, latency.threads, sme2, latency.measured, latency.rounds, *figures,
        traced.median if traced else None, cost.share if cost else None, latency.load_ms,
        latency.first_inference_ms, latency.peak_memory_bytes,
    )  # fmt: skip


def sample_table(run: Run) -> Records:
    kept = ((series, stats) for series in run.series if (stats := run.robust_stats(series)))
    return Records.of(
        SAMPLES,
        (
            (series.experiment, series.threads, number, place, ms)
            for series, stats in kept
            for number, latencies in enumerate(stats.end_to_end_rounds_ms)
            for place, ms in enumerate(latencies)
        ),
    )


def run_speedups(analysis: RunAnalysis) -> Records:
    run = analysis.run
    return speedup_table(pair_answer(run, pair, analysis.pairing(pair)) for pair in run.pairs)


def speedup_table(answers: Iterable[PairSpeedup]) -> Records:
    return Records.of(SPEEDUPS, map(_speedup, answers))


def _speedup(found: PairSpeedup) -> tuple[Value, ...]:
    answer = found.speedup
    return (
        found.label, *_series(found.baseline), *_series(found.candidate), *_answer(answer, answer.ratio),
        answer.confidence, answer.baseline_median, answer.candidate_median, answer.rounds, answer.unit,
        found.with_tracer, answer.reason,
    )  # fmt: skip


def category_change_table(pairings: Iterable[tuple[str, Pairing]]) -> Records:
    return Records.of(
        CATEGORY_CHANGES,
        (
            (
                name, part.name, *_times(pairing, part.baseline_ms, part.candidate_ms),
                *_answer(part.speedup, part.ratio), part.baseline_share, part.candidate_share,
            )
            for name, pairing in pairings
            for part in pairing.categories
        ),
    )  # fmt: skip


def operator_change_table(pairings: Iterable[tuple[str, Pairing]]) -> Records:
    return Records.of(
        OPERATOR_CHANGES,
        (
            (
                name, pair.main.name, pair.category.value, pair.main.place, pair.change,
                *_times(pairing, pair.baseline_ms, pair.candidate_ms), *_answer(pair.speedup, pair.ratio),
                " + ".join(operator.name for operator in pair.baseline),
                " + ".join(operator.name for operator in pair.candidate), *pair.families,
            )
            for name, pairing in pairings
            for pair in pairing.operators
        ),
    )  # fmt: skip


def _series(series: Series) -> tuple[Value, Value]:
    return series.experiment, series.threads


def _traced(series: SeriesAnalysis) -> tuple[Value, ...]:
    return *_series(series.series), series.times.value


def _times(pairing: Pairing, before: float, after: float) -> tuple[Value, Value]:
    shown = pairing.baseline.times.are_shown and pairing.candidate.times.are_shown
    return (before, after) if shown else (None, None)


def _answer(found: Speedup | None, ratio: float | None) -> tuple[Value, ...]:
    return (found.verdict.value, ratio, found.low, found.high) if found else ("", ratio, None, None)


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
        return category_table(self.series)

    @property
    def operators(self) -> Records:
        """Every operator: `ms`, which adds up to its category, and the columns of
        `_exec_operator_details.csv` over all rounds: spread, shapes, cost, module, source line."""
        return operator_table(self.series)

    @property
    def latencies(self) -> Records:
        """What an inference takes without the tracer, as in `metrics.json`; empty without latencies."""
        return latency_table(self.run)

    @property
    def samples(self) -> Records:
        """Every latency without the tracer that counts, by round or launch, as in `_robust_stats.json`."""
        return sample_table(self.run)

    @property
    def speedups(self) -> Records:
        """The answer to every pair that the run compares, as in `metrics.json`."""
        return run_speedups(self)

    @property
    def category_changes(self) -> Records:
        """Each category of each pair, before and after."""
        return category_change_table((pair.label, pair) for pair in self.pairings)

    @property
    def operator_changes(self) -> Records:
        """Each operator of each pair, before and after, with the kernels it took."""
        return operator_change_table((pair.label, pair) for pair in self.pairings)

    def _repr_html_(self) -> str:
        return render_fragment(run_cell(report_data(self.run, self)))


def analysed(facts: RunAnalysis) -> AnalysedRun:
    """`facts` with all that."""
    if isinstance(facts, AnalysedRun):
        return facts
    return AnalysedRun(**{field.name: getattr(facts, field.name) for field in fields(facts)})
