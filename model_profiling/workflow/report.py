"""Writes the report of a run, or one page about several.

Nothing is required but one dump or one metrics.json. What is missing is said in the report, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_profiling import files
from model_profiling.progress import Progress
from model_profiling.report.combined import combined_document
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.markdown import render_markdown
from model_profiling.report.run_report import run_document
from model_profiling.run import Run, Times, names
from model_profiling.workflow.analyse import analyse


def gather_report(
    run_dir: Path, *, title: str | None = None, times: Times | None = None, progress: Progress | None = None
) -> ReportData:
    """Everything known about the run in `run_dir`."""
    run = Run.open(run_dir, times=times)
    return report_data(run, analyse(run, progress=progress) if run.dumps else None, title)


def write_report(
    run_dir: Path,
    *,
    out: Path | None = None,
    title: str | None = None,
    times: Times | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ReportData]:
    """Write the Markdown report of `run_dir`, into it unless `out` names a file; returns its path."""
    data = gather_report(run_dir, title=title, times=times, progress=progress)
    return write_run_report(data, out or run_dir / names.REPORT), data


def write_run_report(data: ReportData, path: Path) -> Path:
    files.write_text(path, render_markdown(run_document(data)))
    return path


def write_combined_report(
    run_dirs: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    times: Times | None = None,
    progress: Progress | None = None,
) -> list[ReportData]:
    """Write one page about several runs to `out`."""
    runs = [gather_report(run_dir, times=times, progress=progress) for run_dir in run_dirs]
    files.write_text(out, render_markdown(combined_document(runs, title or "Runs side by side")))
    return runs
