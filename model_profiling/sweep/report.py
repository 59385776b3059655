"""The page about a sweep: what failed, the fastest of each model, every experiment of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config import names
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import MISSING, milliseconds, percent, plural, short_rate, tokens_per_s
from model_profiling.report.combined import what_times_are
from model_profiling.report.data import ExperimentReport, ReportData, report_data
from model_profiling.report.document import Block, Folded, Heading, Link, Table, Text, make_list, make_table
from model_profiling.report.dtypes import OnSme2, read_on_sme2
from model_profiling.runs import Run
from model_profiling.runs.times import marked
from model_profiling.sweep.cells import Cell, CellRecord, CellState, SweepRecord
from model_profiling.workflow.report import write_page


@dataclass(frozen=True, slots=True)
class Row:
    """An experiment at a number of threads, in one of the sweep's runs. `cell` is any cell of that run."""

    cell: Cell
    run_dir: str
    experiment: ExperimentReport
    is_arm: bool | None
    tokens: int | None
    """In one inference of a language model."""
    coverage: OnSme2 | None
    """Of the program; None if SME2 is off or nothing was tested."""

    @property
    def median_ms(self) -> float | None:
        return self.experiment.summary.median if self.experiment.summary else None

    @property
    def facts(self) -> dict[str, object]:
        series = self.experiment.series
        return {
            **{"run_dir": self.run_dir, "experiment": series.experiment, "threads": series.threads},
            **{"median_ms": self.median_ms, "tokens_per_s": tokens_per_s(self.tokens, self.median_ms)},
            "sme2_arithmetic_share": self.coverage.arithmetic_share if self.coverage else None,
        }


@dataclass(frozen=True, slots=True)
class SweepResults:
    record: SweepRecord
    rows: tuple[Row, ...]
    times: dict[str, str]
    """Each target with the meaning of its times."""

    @property
    def fastest(self) -> tuple[Row, ...]:
        """The row with the smallest median of each case of each model on each target."""
        best: dict[tuple[str, ...], tuple[float, Row]] = {}
        for row in self.rows:
            key = (row.cell.program.model, row.cell.case, row.cell.target)
            if row.median_ms is not None and (key not in best or row.median_ms < best[key][0]):
                best[key] = row.median_ms, row
        return tuple(row for _, row in best.values())


def write_sweep_report(folder: Path, record: SweepRecord) -> tuple[Path, SweepResults]:
    results = gather(folder, record)
    return write_page(sweep_document(results), folder / names.REPORT, sweep_title(record)), results


def gather(folder: Path, record: SweepRecord) -> SweepResults:
    rows: list[Row] = []
    times: dict[str, str] = {}
    for run_dir, cell in {cell.run_dir: cell.cell for cell in record.cells if cell.run_dir}.items():
        try:
            run = Run.open(folder / run_dir)
        except ProfilingError:
            continue  # what is wrong with it is in its cells
        if run.manifest is not None:
            data = report_data(run, None)
            rows += _rows(data, cell, run_dir)
            meaning = ": ".join(text for text in (data.device, what_times_are(data)) if text)
            times.setdefault(cell.target, meaning)
    return SweepResults(record, tuple(rows), times)


def _rows(data: ReportData, cell: Cell, run_dir: str) -> Iterator[Row]:
    tokens = data.run.manifest.tokens if data.run.manifest else None
    coverage = read_on_sme2(data.run.path)
    for experiment in data.experiments:
        shown = coverage if experiment.sme2 is not False else None
        yield Row(cell, run_dir, experiment, data.is_arm, tokens, shown)


def sweep_document(results: SweepResults) -> list[Block]:
    record = results.record
    fastest: list[Block] = [Heading("The fastest of each model"), fastest_table(results)]
    left_out = [f"{plural(len(cells), 'cell')}: {reason}" for reason, cells in _by_reason(record, "left out")]
    return [
        Heading(sweep_title(record), 1),
        *make_list(failures(record) or ["Every cell is done."]),
        *(fastest if results.fastest else ()),
        Heading("Experiments"),
        experiments_table(results),
        *make_list(_notes(results)),
        *([Folded("Cells left out", tuple(make_list(left_out)))] if left_out else []),
    ]


def _notes(results: SweepResults) -> Iterator[str]:
    if any(row.coverage for row in results.rows):
        yield "SME2 coverage: the share of the program's matrix arithmetic that ran on SME2 kernels."
    if results.fastest:
        yield "The fastest has the smallest median; `sme2prof compare` says whether that is more than noise."
    yield from (f"{target}: {meaning}." for target, meaning in results.times.items())


def sweep_title(record: SweepRecord) -> str:
    """`Sweep nightly: 30 of 34 cells done, 4 failed`, without cells that were left out."""
    counts = record.counts()
    wanted = sum(count for state, count in counts.items() if state != "left out")
    others = [f"{counts[state]} {state}" for state in ("failed", "waiting") if state in counts]
    done = f"{counts.get('done', 0)} of {plural(wanted, 'cell')} done"
    return f"Sweep {record.name}: {', '.join((done, *others))}"


def failures(record: SweepRecord) -> list[str]:
    """A line for each reason, with the first cell that failed for it."""
    lines = []
    for reason, cells in _by_reason(record, "failed"):
        others = f" and {plural(len(cells) - 1, 'other cell')}" if cells[1:] else ""
        lines.append(f"{cells[0].cell.id}{others}: {reason}")
    return lines


def _by_reason(record: SweepRecord, state: CellState) -> list[tuple[str, list[CellRecord]]]:
    reasons: dict[str, list[CellRecord]] = {}
    for cell in record.cells:
        if cell.state == state:
            reasons.setdefault(f"{cell.reason}; {cell.fix}" if cell.fix else cell.reason, []).append(cell)
    return list(reasons.items())


def fastest_table(results: SweepResults) -> Table:
    return _table(results.fastest, ("program", "target", "threads", "experiment", "median ms", "5% to 95%"))


def experiments_table(results: SweepResults) -> Table:
    columns = ("program", "target", "threads", "experiment", "median ms", "5% to 95%", "SME2 coverage")
    return _table(results.rows, columns)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> Table:
    if any(row.tokens for row in rows):
        columns = (*columns, "tokens/s")
    numbers = [place for place, name in enumerate(columns) if name in ("threads", "median ms", "tokens/s")]
    cells = ([_COLUMNS[name](row) or MISSING for name in columns] for row in rows)
    return make_table(columns, cells, numbers)


def _spread(row: Row) -> str | None:
    latency = row.experiment.summary
    return f"{milliseconds(latency.p5)} to {milliseconds(latency.p95)}" if latency else None


_COLUMNS: dict[str, Callable[[Row], Text | None]] = {
    "program": lambda row: Link(row.cell.run_name, f"{row.run_dir}/{names.REPORT_PAGE}"),
    "target": lambda row: marked(row.cell.target, row.is_arm if row.median_ms else None),
    "threads": lambda row: str(row.experiment.series.threads),
    "experiment": lambda row: row.experiment.series.experiment,
    "median ms": lambda row: milliseconds(row.median_ms) if row.median_ms else None,
    "5% to 95%": _spread,
    "tokens/s": lambda row: short_rate(tokens_per_s(row.tokens, row.median_ms)),
    "SME2 coverage": lambda row: percent(row.coverage.arithmetic_share) if row.coverage else None,
}
