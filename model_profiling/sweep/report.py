"""The page about a sweep: what failed, the fastest of each model, every cell. Figures come from the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import MISSING, milliseconds, percent, plural, short_rate, tokens_per_s
from model_profiling.report.combined import what_times_are
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Link,
    Table,
    Text,
    make_list,
    make_table,
)
from model_profiling.report.dtypes import OnSme2, read_on_sme2
from model_profiling.runs import Run
from model_profiling.runs.times import marked
from model_profiling.statistics.latency import LatencySummary
from model_profiling.sweep.cells import CellRecord, CellState, SweepRecord
from model_profiling.sweep.folder import results_of
from model_profiling.workflow.report import write_page


@dataclass(frozen=True, slots=True)
class Row:
    """One cell, or several that were measured as one, with the results."""

    cells: tuple[CellRecord, ...]
    latency: LatencySummary | None = None
    baseline: bool = False
    """Whether the CPU could not tell its rungs apart."""
    is_arm: bool | None = None
    tokens_per_s: float | None = None
    """Of a language model."""
    coverage: OnSme2 | None = None
    """Of the program; None if SME2 is off or nothing was tested."""

    @property
    def first(self) -> CellRecord:
        return self.cells[0]

    @property
    def rung(self) -> str:
        """On and off are said only of a CPU that has SME2."""
        return "baseline" if self.baseline else self.first.cell.rung

    @property
    def sme2_share(self) -> float | None:
        return self.coverage.arithmetic_share if self.coverage else None


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
            cell = row.first.cell
            key = (cell.program.model, cell.case, cell.target)
            if row.latency is not None and (key not in best or row.latency.median < best[key][0]):
                best[key] = row.latency.median, row
        return tuple(row for _, row in best.values())


def write_sweep_report(folder: Path, record: SweepRecord) -> tuple[Path, SweepResults]:
    results = gather(folder, record)
    page = write_page(sweep_document(results), folder / names.REPORT, sweep_title(record))
    return page, results


def gather(folder: Path, record: SweepRecord) -> SweepResults:
    rows: list[Row] = []
    times: dict[str, str] = {}
    by_run: dict[str | None, list[CellRecord]] = {}
    for cell in record.cells:
        by_run.setdefault(cell.run_dir, []).append(cell)
    for run_dir, cells in by_run.items():
        data = _opened(folder / run_dir) if run_dir else None
        if data is None:
            rows += [Row((cell,)) for cell in cells]
            continue
        rows += _rows(data, cells)
        meaning = ": ".join(text for text in (data.device, what_times_are(data)) if text)
        times.setdefault(cells[0].cell.target, meaning)
    order = {cell.cell.id: place for place, cell in enumerate(record.cells)}
    rows.sort(key=lambda row: order[row.first.cell.id])
    proven = {row.first.cell.run_name: row.coverage for row in rows if row.coverage}
    for place, row in enumerate(rows):
        if row.baseline and row.coverage is None:  # another target's run of the program proves it
            rows[place] = replace(row, coverage=proven.get(row.first.cell.run_name))
    return SweepResults(record, tuple(rows), times)


def _opened(run_dir: Path) -> ReportData | None:
    try:
        run = Run.open(run_dir)
    except ProfilingError:
        return None
    return report_data(run, None) if run.manifest is not None else None


def _rows(data: ReportData, cells: Sequence[CellRecord]) -> Iterator[Row]:
    """Cells that the CPU cannot tell apart are measured once: they have the same series, and share a row."""
    manifest = data.run.manifest
    assert manifest is not None
    latencies = {experiment.series: experiment.summary for experiment in data.experiments}
    off = {experiment.series for experiment in data.experiments if experiment.sme2 is False}
    coverage = read_on_sme2(data.run.path)
    groups: dict[tuple[str, tuple[Series, ...]], list[CellRecord]] = {}
    for cell in cells:
        series = tuple(result.series for result in results_of(cell.cell, manifest))
        same = cell.state if cell.state == "done" else cell.cell.id
        groups.setdefault((same, series), []).append(cell)
    for (same, series), group in groups.items():
        known = [summary for one in series if same == "done" and (summary := latencies.get(one)) is not None]
        fastest = min(known, key=lambda summary: summary.median, default=None)
        yield Row(
            tuple(group),
            fastest,
            any(len(manifest.asked_as(one.experiment)) > 1 for one in series),
            data.is_arm,
            tokens_per_s(manifest.tokens, fastest.median if fastest else None),
            coverage if off.isdisjoint(series[:1]) else None,  # the first of a ladder has most
        )


def sweep_document(results: SweepResults) -> list[Block]:
    record = results.record
    fastest: list[Block] = [Heading("The fastest of each model"), fastest_table(results)]
    left_out = [f"{plural(len(cells), 'cell')}: {reason}" for reason, cells in _by_reason(record, "left out")]
    return [
        Heading(sweep_title(record), 1),
        *make_list(failures(record) or ["Every cell is done."]),
        *(fastest if results.fastest else ()),
        Heading("Cells"),
        cells_table(results),
        *make_list(_notes(results)),
        *([Folded("Cells left out", tuple(make_list(left_out)))] if left_out else []),
    ]


def _notes(results: SweepResults) -> Iterator[str]:
    if any(row.baseline for row in results.rows):
        yield "baseline: the CPU lacks what these rungs switch off, so they are measured once."
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
    case = ("case",) if any(row.first.cell.case for row in results.fastest) else ()
    columns = ("model", *case, "target", "dtype", "backend", "threads", "rung", "median ms", "5% to 95%")
    return _table(results.fastest, columns)


def cells_table(results: SweepResults) -> Table:
    """Every cell that was to be measured; cells that were measured as one share a row."""
    columns = ("program", "target", "threads", "rung", "median ms", "5% to 95%", "SME2 coverage", "state")
    return _table([row for row in results.rows if row.first.state != "left out"], columns)


def _table(rows: Sequence[Row], columns: Sequence[str]) -> Table:
    if any(row.tokens_per_s for row in rows):
        columns = (*columns, "tokens/s")
    numbers = [place for place, name in enumerate(columns) if name in ("threads", "median ms", "tokens/s")]
    cells = ([_COLUMNS[name](row) or MISSING for name in columns] for row in rows)
    return make_table(columns, cells, numbers)


def _linked(record: CellRecord) -> Text:
    name = record.cell.run_name
    return Link(name, f"{record.run_dir}/{names.REPORT_PAGE}") if record.state == "done" else Code(name)


def _spread(latency: LatencySummary | None) -> str | None:
    return f"{milliseconds(latency.p5)} to {milliseconds(latency.p95)}" if latency else None


_COLUMNS: dict[str, Callable[[Row], Text | None]] = {
    "program": lambda row: _linked(row.first),
    "model": lambda row: names.variant_of(Path(f"{row.first.cell.program.name}.pte"))[0],
    "case": lambda row: row.first.cell.case,
    "target": lambda row: marked(row.first.cell.target, row.is_arm if row.latency else None),
    "dtype": lambda row: row.first.cell.program.dtype,
    "backend": lambda row: row.first.cell.program.backend,
    "threads": lambda row: str(row.first.cell.threads),
    "rung": lambda row: row.rung,
    "median ms": lambda row: milliseconds(row.latency.median) if row.latency else None,
    "5% to 95%": lambda row: _spread(row.latency),
    "tokens/s": lambda row: short_rate(row.tokens_per_s),
    "SME2 coverage": lambda row: percent(row.sme2_share) if row.coverage else None,
    "state": lambda row: f"failed: {row.first.reason}" if row.first.state == "failed" else row.first.state,
}
