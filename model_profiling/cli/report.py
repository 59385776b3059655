"""`sme2prof report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import for_tools, frame
from model_profiling.cli.bundle import say_replaced, scrub_options
from model_profiling.cli.for_tools import page_facts, pages, print_answers
from model_profiling.cli.progress import shown_progress
from model_profiling.report.headroom import outlook_facts
from model_profiling.report.verdict import answers
from model_profiling.run.evidence import Factors
from model_profiling.run.folders import expand_runs
from model_profiling.workflow.bundle import Shared, share_report
from model_profiling.workflow.measure import use_factors
from model_profiling.workflow.report import combined_page, write_combined_report, write_report
from model_profiling.workflow.scrubbed_copy import ShareOptions

if TYPE_CHECKING:
    from model_profiling.report.data import ReportData


@frame.command(
    "report",
    example="""sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof report folder_with_dumps --out toy.md --title "Toy CNN, first look"
    sme2prof report runs/xnnpack_fp16/linux runs/xnnpack_int8/linux --out both.md
    sme2prof report out_toy_cnn/runs
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --for perfetto,speedscope
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --share""",
    facts=True,
)
@click.argument("run_dirs", metavar="RUN_DIR...", nargs=-1, required=True, type=frame.PATH)
@click.option(
    "--out",
    type=frame.FILE,
    help="File to write [default: RUN_DIR/report.md; of several runs combined_report.md, in FOLDER or here].",
)
@click.option("--title", help="The first heading [default: the model and where it ran].")
@for_tools.tools_option
@click.option(
    "--share", is_flag=True, help="Write a copy fit to send: shared_report.html, nothing private in it."
)
@scrub_options
@frame.times_option
@frame.factor_option
def command(
    *,
    run_dirs: tuple[Path, ...],
    tools: tuple[str, ...],
    out: Path | None,
    factors: Factors | None,
    share: bool,
    rename: str | None,
    keep: tuple[str, ...],
    as_json: bool,
    **asked: Any,  # click has typed them; they are parameters of what writes a page: title and times
) -> None:
    """Write the report of RUN_DIR as HTML and Markdown, and print its answers; several get one page.

    RUN_DIR is a run directory, any folder with .etdump files, or a folder of runs: all of them.
    What is missing is said in the report; times of emulated and traced runs are never shown as latencies.
    """
    named, run_dirs = run_dirs, expand_runs(run_dirs)
    if (rename or keep) and not share:
        raise click.UsageError("--rename and --keep belong to --share")
    if share and tools:
        words = "--share and --for exclude each other: files for tools hold paths and source lines"
        raise click.UsageError(words)
    with shown_progress() as progress:
        if factors is not None:
            for run_dir in run_dirs:
                use_factors(run_dir, factors)
        if share:
            options = ShareOptions(rename, keep)
            _say_shared(share_report(run_dirs, out, options=options, **asked, progress=progress), as_json)
            return
        if len(run_dirs) == 1:
            path, data = write_report(run_dirs[0], out=out, **asked, progress=progress)
            runs = [data]
        else:
            path = out or combined_page(named)
            runs = write_combined_report(run_dirs, path, **asked, progress=progress)
        made = for_tools.write_asked(runs, tools)
    if factors is not None:
        frame.warn_without_projection(data.outlook for data in runs)
    for_tools.tell_github((data, path) for data in runs)
    if as_json:
        told = [answers(data).facts() for data in runs]
        found = told[0] if len(runs) == 1 else {key: [each[key] for each in told] for key in told[0]}
        outlooks = [outlook_facts(data.outlook) for data in runs]
        projected = outlooks[0] if len(runs) == 1 else {"sme2": outlooks}
        facts = {**page_facts(path), **found, **projected, **for_tools.tool_facts(made)}
        frame.facts({"schema_version": 1, **facts})
        return
    _say_answers(runs)
    for written in pages(path):
        frame.say_wrote(written)
    for_tools.print_made(made)


def _say_answers(runs: Sequence[ReportData]) -> None:
    for data in runs:
        if len(runs) > 1:
            frame.say(f"{data.title} ({data.run.path})")
        print_answers(answers(data))
        if len(runs) > 1:
            frame.say()


def _say_shared(shared: Shared, as_json: bool) -> None:
    if as_json:
        replaced = list(map(asdict, shared.replaced))
        frame.facts({"schema_version": 1, "report": str(shared.path), "replaced": replaced})
        return
    say_replaced(shared.replaced)
    for written in pages(shared.path):
        frame.say_wrote(written)
