"""Writes the report of one or several runs, and files for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.report.charts import draw_svg
from model_profiling.report.combined import combined_document, combined_title
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, charts_in, render_markdown
from model_profiling.report.html import render_html
from model_profiling.report.run_report import run_document
from model_profiling.report.tools import TOOLS, NothingToShow, write_for
from model_profiling.runs import Run, Times
from model_profiling.workflow.analyse import analyse


def gather_report(
    run_dir: Path,
    *,
    title: str | None = None,
    times: Times | None = None,
    called: str = "",
) -> ReportData:
    """Analyse a run for its report, in which the run directory is `called` that."""
    run = Run.open(run_dir, times=times, called=called)
    return report_data(run, analyse(run) if run.dumps else None, title)


def write_report(
    run_dir: Path,
    *,
    out: Path | None = None,
    title: str | None = None,
    times: Times | None = None,
    pictures: bool = False,
) -> tuple[Path, ReportData]:
    """Write the Markdown report of `run_dir` to `out`, or else into the run directory."""
    data = gather_report(run_dir, title=title, times=times)
    path = out or run_dir / names.REPORT
    return write_page(run_document(data), path, data.title, pictures=pictures), data


def write_page(blocks: Sequence[Block], path: Path, title: str, *, pictures: bool = False) -> Path:
    """Write a page to `path`: only HTML if the suffix says so, otherwise Markdown and an HTML copy beside it,
    with a folder of `pictures` for the Markdown if asked."""
    page = path.with_suffix(names.HTML)
    if path != page:
        folder = path.with_name(path.stem + names.PICTURES)
        if pictures:
            files.real_folder(path.parent, folder)
            for chart in charts_in(blocks):
                files.write_text(folder / f"{chart.name}.svg", draw_svg(chart))
        files.write_text(path, render_markdown(blocks, folder.name if pictures else ""))
    files.write_text(page, render_html(blocks, title))
    return path


def write_combined_report(
    run_dirs: Sequence[Path],
    out: Path,
    *,
    title: str | None = None,
    times: Times | None = None,
    pictures: bool = False,
) -> list[ReportData]:
    runs = [gather_report(run_dir, times=times) for run_dir in run_dirs]
    title = title or combined_title(runs)
    write_page(combined_document(runs, title), out, title, pictures=pictures)
    return runs


# Files for other tools, in the run's folder `for_tools`.

ALL = "all"


@dataclass(frozen=True, slots=True)
class ToolFiles:
    """The files for one tool, and how to open them; `left_out` says why there are none."""

    tool: str
    files: tuple[Path, ...]
    opens: str
    left_out: str = ""


def parse_tools(text: str) -> tuple[str, ...]:
    """Parse tool names separated by commas, or `all`."""
    words = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    if not words:
        raise InputError("no tool is named", f"give {ALL} or some of {', '.join(TOOLS)}")
    for word in words:
        if word not in TOOLS and word != ALL:
            hint = did_you_mean(word, (*TOOLS, ALL)) or f"give {ALL} or some of {', '.join(TOOLS)}"
            raise InputError(f"there is no tool {word}", hint)
    return words


def write_for_tools(data: ReportData, wanted: Sequence[str]) -> tuple[ToolFiles, ...]:
    """Write files for the `wanted` tools; a named tool must get files, while `all` may skip some."""
    folder = data.run.path / names.FOR_TOOLS
    made = []
    for name in TOOLS if ALL in wanted else wanted:
        try:
            made.append(ToolFiles(name, write_for(name, data, folder), TOOLS[name]))
        except NothingToShow as problem:
            if name in wanted:
                raise
            made.append(ToolFiles(name, (), TOOLS[name], problem.problem))
    return tuple(made)
