"""What a command leaves in GitHub Actions, decided here for all of them: a summary of the job and a badge.

A summary where $GITHUB_STEP_SUMMARY names its file, a badge of each run where $GITHUB_ACTIONS is true;
nothing anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from model_profiling.errors import InputError, system_reason
from model_profiling.report.comparison import Comparison
from model_profiling.report.data import ReportData
from model_profiling.report.document import Block
from model_profiling.report.markdown import render_markdown
from model_profiling.report.tools import TOOLS
from model_profiling.report.tools.github_summary import comparison_summary, run_summary
from model_profiling.run import names

_LARGEST = 900_000
"""GitHub drops a step's summary of more than 1 MiB."""


def tell_of_runs(found: Iterable[tuple[ReportData, Path]], first: Iterable[Block] = ()) -> str | None:
    """Add runs, each with its report, to the job's summary, below the blocks `first`; write their badges.

    Returns why something could not be done: a job does not fail for want of its summary.
    """
    runs = tuple(found)
    problems = []
    for data, _ in runs if os.environ.get("GITHUB_ACTIONS") == "true" else ():
        try:
            TOOLS["badge"].write(data, data.run.path / names.FOR_TOOLS)
        except InputError as problem:
            problems.append(str(problem))
    blocks = [*first, *(block for data, report in runs for block in run_summary(data, report))]
    problems.append(_add(blocks) or "")
    return "; ".join(filter(None, problems)) or None


def tell_of_comparison(comparison: Comparison) -> str | None:
    """Add a comparison to the job's summary."""
    return _add(comparison_summary(comparison))


def _add(blocks: Iterable[Block]) -> str | None:
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        return None
    path, text = Path(place), render_markdown(blocks)
    try:
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        if text in there:
            return None  # the same command again in one step says nothing new
        if len((there + text).encode("utf-8", "replace")) > _LARGEST:
            return "the job's summary on GitHub is full: this one was not added"
        with path.open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(f"\n{text}" if there else text)
    except OSError as problem:
        return f"cannot add to the job's summary {path}: {system_reason(problem)}"
    return None
