"""An analysed run as people use it from Python: its facts, with tables and a page for a notebook's cell."""

from __future__ import annotations

from dataclasses import dataclass, fields

from model_profiling.analysis.run import RunAnalysis
from model_profiling.report import run_tables
from model_profiling.report.cells import run_cell
from model_profiling.report.data import report_data
from model_profiling.report.html.fragment import render_fragment
from model_profiling.report.records import Records


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
        return run_tables.category_table(self.series)

    @property
    def operators(self) -> Records:
        """Every operator: `ms`, which adds up to its category, and the columns of
        `_exec_operator_details.csv` over all rounds: spread, shapes, cost, module, source line."""
        return run_tables.operator_table(self.series)

    @property
    def latencies(self) -> Records:
        """What an inference takes without the tracer, as in `metrics.json`; empty without latencies."""
        return run_tables.latency_table(self.run)

    @property
    def samples(self) -> Records:
        """Every latency without the tracer that counts, by round or launch, as in `_robust_stats.json`."""
        return run_tables.sample_table(self.run)

    @property
    def speedups(self) -> Records:
        """The answer to every pair that the run compares, as in `metrics.json`."""
        return run_tables.run_speedups(self)

    @property
    def category_changes(self) -> Records:
        """Each category of each pair, before and after."""
        return run_tables.category_change_table((pair.label, pair) for pair in self.pairings)

    @property
    def operator_changes(self) -> Records:
        """Each operator of each pair, before and after, with the kernels it took."""
        return run_tables.operator_change_table((pair.label, pair) for pair in self.pairings)

    def _repr_html_(self) -> str:
        return render_fragment(run_cell(report_data(self.run, self)))


def analysed(facts: RunAnalysis) -> AnalysedRun:
    """`facts` with all that."""
    if isinstance(facts, AnalysedRun):
        return facts
    return AnalysedRun(**{field.name: getattr(facts, field.name) for field in fields(facts)})
