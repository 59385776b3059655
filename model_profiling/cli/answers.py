"""The end of a command's output: answers, warnings and pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model_profiling.cli import frame
from model_profiling.config import names
from model_profiling.config.series import WarningLine, Weight
from model_profiling.core import files
from model_profiling.report.document import make_list
from model_profiling.report.text import render_terminal
from model_profiling.report.verdict import RunAnswers


def print_answers(run_answers: RunAnswers, *, quiet: bool = False) -> None:
    """Print the notes (unless `quiet`), then the three answers."""
    if run_answers.notes and not quiet:
        frame.say(render_terminal(make_list(run_answers.notes)) + "\n")
    frame.say(render_terminal([run_answers.block]))


def pages(report: Path) -> list[Path]:
    """The report's files, the one to open first at the front."""
    html = report if files.is_stdout(report) else report.with_suffix(names.HTML)
    return list(dict.fromkeys((html, report)))


def page_facts(report: Path) -> dict[str, object]:
    return {"report": str(report), "report_html": str(pages(report)[0])}


def print_warnings(lines: Sequence[WarningLine], *, quiet: bool) -> int:
    """Print warnings; return exit code 2 if an experiment failed, which is printed even if `quiet`."""
    failed = False
    for line in lines:
        if line.kind == "failed":
            failed = True
            frame.fail(line.text)
        elif not quiet or line.weight is Weight.FAILED:
            frame.warn(line.text)
    return 2 if failed else 0
