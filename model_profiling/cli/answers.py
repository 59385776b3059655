"""The last lines of every command that makes or reads a run: the three answers, then where the report is."""

from __future__ import annotations

from pathlib import Path

from model_profiling import files
from model_profiling.cli import frame
from model_profiling.report.document import make_list
from model_profiling.report.terminal import render_terminal
from model_profiling.report.verdict import RunAnswers
from model_profiling.run import names


def print_answers(found: RunAnswers, *, quiet: bool = False) -> None:
    """The notes, which `quiet` leaves out, then the three answers."""
    if found.notes and not quiet:
        frame.say(render_terminal(make_list(found.notes)) + "\n")
    frame.say(render_terminal([found.block]))


def pages(report: Path) -> list[Path]:
    """The files of a report, the one to open first."""
    html = report if files.is_stream(report) else report.with_suffix(names.HTML)
    return list(dict.fromkeys((html, report)))


def page_facts(report: Path) -> dict[str, object]:
    return {"report": str(report), "report_html": str(pages(report)[0])}
