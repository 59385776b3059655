"""An analysed run and the figures of comparisons as tables for Python; pandas is loaded only on request.

Values and names are those of the run's own files. Times are missing if they mean nothing
(`Times.are_shown`), as in the reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from model_profiling import facts as run_facts
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis, pair_answer
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.facts import (
    OPERATOR_FACTS,
    ColumnKind,
    Fact,
    Field,
    Known,
    MeasuredSeries,
    Value,
    row_cells,
)
from model_profiling.report.csv_files import operator_rows
from model_profiling.report.data import report_data
from model_profiling.runs.records import PairSpeedup
from model_profiling.statistics.speedup import median_interval

if TYPE_CHECKING:
    import pandas

Columns: TypeAlias = Mapping[str, ColumnKind]

_NAMED_IN_SHORT = 4
_PLAIN = {"whole": "int64", "number": "float64", "flag": "bool"}
_WITH_GAPS = {"whole": "Int64", "number": "float64", "flag": "boolean"}


@dataclass(frozen=True, slots=True, repr=False)
class Records:
    """A table of a run: each row maps column to value, None where nothing is known.

    `table.to_pandas()` is a DataFrame, `table[0]["name"]` one value, `for row in table` needs no pandas.
    """

    kinds: Columns
    rows: tuple[tuple[Value, ...], ...]

    @classmethod
    def of(cls, facts: Sequence[Fact[Known]], rows: Iterable[Known]) -> Records:
        return cls(_kinds(facts), tuple(row_cells(facts, row) for row in rows))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Mapping[str, Value]:
        return dict(zip(self.kinds, self.rows[place], strict=True))

    def __iter__(self) -> Iterator[Mapping[str, Value]]:
        return (dict(zip(self.kinds, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame of all rows; unknown numbers are missing, unknown texts are empty.

        Needs the extra `pandas`; nothing else here does.
        """
        needed("pandas", "pandas")
        import pandas

        return pandas.DataFrame(
            {
                name: _series([row[place] for row in self.rows], kind)
                for place, (name, kind) in enumerate(self.kinds.items())
            }
        )

    def __repr__(self) -> str:
        first, more = self.columns[:_NAMED_IN_SHORT], len(self.columns) - _NAMED_IN_SHORT
        rest = f" and {more} more columns" if more > 0 else ""
        return f"<Records: {plural(len(self), 'row')} of {', '.join(first)}{rest}>"


def _series(values: list[Value], kind: ColumnKind) -> pandas.Series:
    import pandas

    if kind == "texts":
        return pandas.Series(values, dtype="object")
    if kind == "text":
        return pandas.Series(["" if value is None else value for value in values], dtype="object")
    dtypes = _WITH_GAPS if None in values else _PLAIN
    return pandas.Series(values, dtype=dtypes[kind])


def _kinds(columns: Iterable[Field]) -> dict[str, ColumnKind]:
    return {column.name: column.column_kind for column in columns}


def _categories(series: SeriesAnalysis) -> Iterator[run_facts.CategoryRow]:
    for name, part in series.parts.items():
        spent, count = series.spent(part), series.operator_counts.get(name)
        ms, share = (spent.ms, spent.share) if series.times.are_shown else (None, None)
        yield run_facts.CategoryRow(series.series, series.times, name, ms, share, count)


def speedup_table(answers: Iterable[PairSpeedup]) -> Records:
    return Records.of(run_facts.SPEEDUP_FACTS, answers)


def category_changes(pairings: Iterable[Pairing]) -> Records:
    rows = (run_facts.Change(part, pairing) for pairing in pairings for part in pairing.categories)
    return Records.of(run_facts.CATEGORY_CHANGE_FACTS, rows)


def operator_changes(pairings: Iterable[Pairing]) -> Records:
    rows = (run_facts.Change(pair, pairing) for pairing in pairings for pair in pairing.operators)
    return Records.of(run_facts.OPERATOR_CHANGE_FACTS, rows)


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
        """Where the time goes: `ms` and `share` of each category and overhead, as in
        `analysis_summary.json`. They add up to the end-to-end time of an experiment, traced."""
        rows = (row for found in self.series for row in _categories(found))
        return Records.of(run_facts.CATEGORY_FACTS, rows)

    @property
    def operators(self) -> Records:
        """Every operator: `ms`, which adds up to its category, and the other facts of `_exec_ops_stats.csv`:
        spread, shapes, cost, module, source line, and whether SME2 runs it."""
        data = report_data(self.run, self)
        kinds = _kinds((*run_facts.TRACED_FACTS, *OPERATOR_FACTS))
        rows = (
            (
                *row_cells(run_facts.TRACED_FACTS, found),
                *(fact.cell(row) if shown or fact.kind != "number" else None for fact in OPERATOR_FACTS),
            )
            for found in self.series
            for shown in (found.times.are_shown,)
            for row in operator_rows(found, data.sme2_of(found))
        )
        return Records(kinds, tuple(rows))

    @property
    def latencies(self) -> Records:
        """What an inference takes without the tracer, as in `metrics.json`; empty without latencies."""
        run = self.run
        measured = [found.series for found in run.metrics.latencies] if run.metrics else []
        rows = (
            MeasuredSeries.of(run, series, interval=median_interval(stats.end_to_end_rounds_ms))
            for series in measured
            if run.times_of(series).are_latencies and (stats := run.robust_stats(series))
        )
        return Records.of(run_facts.EXPERIMENT_FACTS, rows)

    @property
    def samples(self) -> Records:
        """Every latency without the tracer that counts, by round or launch, as in `_robust_stats.json`."""
        kept = ((series, stats) for series in self.run.series if (stats := self.run.robust_stats(series)))
        rows = (
            (series.experiment, series.threads, number, place, ms)
            for series, stats in kept
            for number, latencies in enumerate(stats.end_to_end_rounds_ms)
            for place, ms in enumerate(latencies)
        )
        more: Columns = {"round": "whole", "sample": "whole", "ms": "number"}
        return Records({**_kinds(run_facts.SERIES_FACTS), **more}, tuple(rows))

    @property
    def speedups(self) -> Records:
        """The answer to every pair that the run compares, as in `metrics.json`."""
        return speedup_table(pair_answer(self.run, pair, self.pairing(pair)) for pair in self.run.pairs)

    @property
    def category_changes(self) -> Records:
        """Each category of each pair, before and after."""
        return category_changes(self.pairings)

    @property
    def operator_changes(self) -> Records:
        """Each operator of each pair, before and after, with the kernels it used."""
        return operator_changes(self.pairings)

    def _repr_markdown_(self) -> str:
        from model_profiling.report.document import render_markdown
        from model_profiling.report.run_report import summary_document

        return render_markdown(summary_document(report_data(self.run, self)))
