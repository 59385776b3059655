"""`sme2prof analyze`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from model_profiling.analysis.run import RunAnalysis
from model_profiling.cli import frame
from model_profiling.cli.answers import print_answers
from model_profiling.cli.progress import shown_progress
from model_profiling.config.series import warning_lines
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, Heading, Paragraph
from model_profiling.report.evidence_sections import advice
from model_profiling.report.text import render_terminal
from model_profiling.report.tool_files import series_blocks
from model_profiling.report.verdict import answers
from model_profiling.workflow.analyse import analyse, write_analysis


@frame.command(
    "analyze",
    example="""sme2prof analyze out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof analyze someones_dump.etdump --model their_model.pte --times hardware""",
    facts=True,
)
@click.argument("run_dir", type=frame.PATH)
@click.option("--model", type=frame.PATH, show_default="searched for", help="The .pte that was run.")
@click.option(
    "--etrecord", type=frame.PATH, show_default="the one beside the .pte", help="The .etrecord of that .pte."
)
@frame.times_option
@click.option("--out", type=frame.FOLDER, show_default="beside the dumps", help="Folder for the files.")
@frame.quiet_option
def analyze_command(
    *,
    run_dir: Path,
    out: Path | None,
    quiet: bool,
    as_json: bool,
    **sources: Any,  # parameters of analyse, typed by click
) -> None:
    """Print where the time went in every dump of RUN_DIR, and write it as CSV and JSON.

    RUN_DIR is a run directory, any folder with .etdump files, or one .etdump of any runner. For a page to
    read, use `sme2prof report`: it does the same analysis.
    """
    with shown_progress(quiet=quiet) as progress:
        analysis = analyse(run_dir, **sources, progress=progress)
        written = write_analysis(analysis, out)
    if as_json:
        summary = json.loads(written[-1].read_text(encoding="utf-8"))
        frame.facts(summary | {"files": [str(path) for path in written]})
        return
    data = report_data(analysis.run, analysis)
    if not quiet:
        frame.say(render_terminal(_blocks(data, analysis)).strip())
        of_dumps = (remark for series in analysis.series for remark in series.warnings)
        for line in warning_lines((*analysis.warnings, *of_dumps), analysis.run.series):
            frame.warn(line.text)
        frame.say()
    print_answers(answers(data), quiet=quiet)
    frame.say(f"{len(written)} files written; the summary is {written[-1]}")


def _blocks(data: ReportData, analysis: RunAnalysis) -> Iterator[Block]:
    for series in analysis.series:
        yield from series_blocks(series)
    if data.pairs:
        yield Heading("Compared")
    for pair in data.pairs:
        yield Paragraph(f"{pair.label}: {pair.speedup.verdict.value} ({pair.speedup.reason})")
    if steps := advice(data):
        yield from (Heading("What to do next"), *steps)
