"""Writes the report of a run, or one page about several.

Nothing is required but one dump or one metrics.json. What is missing is said in the report, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError
from model_profiling.progress import Progress
from model_profiling.report.charts.drawing import draw_svg
from model_profiling.report.combined import combined_document, combined_title
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, charts_in
from model_profiling.report.html import render_html
from model_profiling.report.markdown import render_markdown
from model_profiling.report.run_report import run_document
from model_profiling.run import Run, Times, names
from model_profiling.workflow.analyse import analyse

MOST_SERIES = 2000
"""On one page: half a megabyte each while it is made, so a gigabyte; nobody compares more by eye."""


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
    return write_page(run_document(data), path, data.title)


def write_page(blocks: Sequence[Block], path: Path, title: str) -> Path:
    """Write a page to `path`: HTML alone where it ends so, else Markdown, its pictures in a folder beside it,
    and the same page as HTML. Beside a pipe or a device nothing lies: it gets the Markdown alone."""
    if files.is_stream(path):
        files.write_out(path, render_markdown(blocks))
        return path
    page = path.with_suffix(names.HTML)
    if path != page:
        pictures = path.with_name(path.stem + names.PICTURES)
        files.real_folder(path.parent, pictures)  # elsewhere, anybody's old pictures would be removed
        drawn = {f"{chart.name}.svg": draw_svg(chart) for chart in charts_in(blocks)}
        for name, svg in drawn.items():
            files.write_text(pictures / name, svg)
        for old in pictures.glob("*.svg"):
            if old.name not in drawn:
                old.unlink()
        files.write_text(path, render_markdown(blocks, pictures.name))
    files.write_text(page, render_html(blocks, title))
    return path


def combined_page(asked: Sequence[Path]) -> Path:
    """Where a page of several runs goes unless one is named: into the folder that holds them, or here."""
    return asked[0] / names.COMBINED if len(asked) == 1 else Path(names.COMBINED)


def check_one_page(run_dirs: Sequence[Path], times: Times | None = None) -> None:
    """Refuse, before anything is analysed, more than a page of several runs has room for."""
    if len(run_dirs) < 2:
        return
    held = sum(len(Run.open(run_dir, times=times).series) for run_dir in run_dirs)
    if held > MOST_SERIES:
        raise InputError(
            f"{len(run_dirs):,} runs with {held:,} series are too many for one page, which has room for "
            f"{MOST_SERIES:,} series",
            "name some of them; `sme2prof view FOLDER` lists them all",
        )


def write_combined_report(
    run_dirs: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    times: Times | None = None,
    progress: Progress | None = None,
) -> list[ReportData]:
    """Write one page about several runs to `out`."""
    check_one_page(run_dirs, times)
    runs = [gather_report(run_dir, times=times, progress=progress) for run_dir in run_dirs]
    title = title or combined_title(runs)
    write_page(combined_document(runs, title), out, title)
    return runs
