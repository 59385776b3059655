"""The page about a sweep: what failed, and every experiment of its runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config import names
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import MISSING, milliseconds, percent, plural, short_rate, tokens_per_s
from model_profiling.report.combined import what_times_are
from model_profiling.report.data import ExperimentReport, report_data
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


def write_sweep_report(folder: Path, record: SweepRecord) -> tuple[Path, list[Row]]:
    rows, times = read_rows(folder, record)
    return write_page(sweep_document(record, rows, times), folder / names.REPORT, sweep_title(record)), rows


def read_rows(folder: Path, record: SweepRecord) -> tuple[list[Row], dict[str, str]]:
    """The rows, the fastest of each model, case and target first; and what the times of each target mean."""
    rows: list[Row] = []
    times: dict[str, str] = {}
    for run_dir, cell in {cell.run_dir: cell.cell for cell in record.cells if cell.run_dir}.items():
        try:
            run = Run.open(folder / run_dir)
        except ProfilingError:
            continue  # what is wrong with it is in its cells
        data, coverage = report_data(run, None), read_on_sme2(run.path)
        times.setdefault(cell.target, ": ".join(filter(None, (data.device, what_times_are(data)))))
        tokens = run.manifest.tokens if run.manifest else None
        for experiment in data.experiments:
            shown = coverage if experiment.sme2 is not False else None
            rows.append(Row(cell, run_dir, experiment, data.is_arm, tokens, shown))

    def order(row: Row) -> tuple[str, str, str, float]:
        return row.cell.program.model, row.cell.case, row.cell.target, row.median_ms or math.inf

    return sorted(rows, key=order), times


def sweep_document(record: SweepRecord, rows: Sequence[Row], times: Mapping[str, str]) -> list[Block]:
    left_out = [f"{plural(len(cells), 'cell')}: {reason}" for reason, cells in _by_reason(record, "left out")]
    notes = [
        "The fastest of a model on a target is first; `sme2prof compare` tells a difference from noise.",
        "SME2 coverage: the share of the program's matrix arithmetic that ran on SME2 kernels.",
        *(f"{target}: {meaning}." for target, meaning in times.items()),
    ]
    return [
        Heading(sweep_title(record), 1),
        *make_list(failures(record) or ["Every cell is done."]),
        Heading("Experiments"),
        experiments_table(rows),
        *make_list(notes),
        *([Folded("Cells left out", tuple(make_list(left_out)))] if left_out else []),
    ]


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


def experiments_table(rows: Sequence[Row]) -> Table:
    headers = ["program", "target", "threads", "experiment", "median ms", "5% to 95%", "SME2 coverage"]
    headers += ["tokens/s"] if any(row.tokens for row in rows) else []
    return make_table(headers, (_cells(row)[: len(headers)] for row in rows), numbers=(2, 4, 7))


def _cells(row: Row) -> list[Text]:
    series, latency = row.experiment.series, row.experiment.summary
    return [
        Link(row.cell.run_name, f"{row.run_dir}/{names.REPORT_PAGE}"),
        marked(row.cell.target, row.is_arm if latency else None),
        str(series.threads),
        series.experiment,
        milliseconds(latency.median) if latency else MISSING,
        f"{milliseconds(latency.p5)} to {milliseconds(latency.p95)}" if latency else MISSING,
        percent(row.coverage.arithmetic_share) if row.coverage else MISSING,
        short_rate(tokens_per_s(row.tokens, row.median_ms)) or MISSING,
    ]
