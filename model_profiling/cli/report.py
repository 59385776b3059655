"""`sme2prof analyze`, `report` and `view`: show a run, and send it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.analysis.run import RunAnalysis
from model_profiling.cli import frame
from model_profiling.cli.frame import page_facts, pages, print_answers
from model_profiling.config import names
from model_profiling.config.series import warning_lines
from model_profiling.core.formatting import plural
from model_profiling.core.stdio import shown_progress
from model_profiling.report.analysis_json import outlook_facts
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.document import Block, Heading, Paragraph, render_terminal
from model_profiling.report.sections import advice, series_blocks
from model_profiling.report.verdict import answers
from model_profiling.runs.folders import expand_runs
from model_profiling.workflow.analyse import analyse, write_summary
from model_profiling.workflow.report import (
    ToolFiles,
    parse_tools,
    write_combined_report,
    write_for_tools,
    write_report,
)

if TYPE_CHECKING:
    from model_profiling.report.data import ReportData
    from model_profiling.workflow.share import Shared


@frame.command(
    "report",
    example="""sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof report folder_with_dumps --out toy.md --title "Toy CNN, first look"
    sme2prof report runs/xnnpack_fp16/linux runs/xnnpack_int8/linux --out both.md
    sme2prof report out_toy_cnn/runs
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --for perfetto
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --share
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --zip --out for_the_issue.zip""",
    facts=True,
)
@click.argument("run_dirs", metavar="RUN_DIR...", nargs=-1, required=True, type=frame.PATH)
@click.option(
    "--out",
    type=frame.FILE,
    show_default="RUN_DIR/report.md; for several runs combined_report.md",
    help="File to write.",
)
@click.option("--title", show_default="the model and where it ran", help="The first heading.")
@click.option("--pictures", is_flag=True, help="Also write the charts as SVG files beside the Markdown page.")
@click.option(
    "--for",
    "tools",
    metavar="TOOL,...",
    callback=lambda _context, _option, text: parse_tools(text) if text is not None else (),
    help="Also write files for other tools to RUN_DIR/for_tools: perfetto, model-explorer; "
    "several with commas, or all.",
)
@click.option(
    "--share", is_flag=True, help="Write shared_report.html instead: a page to send, without private details."
)
@click.option(
    "--zip",
    "archive",
    is_flag=True,
    help="Write shared_run.zip instead: that page and the figures behind it.",
)
@frame.times_option
def report_command(
    *,
    run_dirs: tuple[Path, ...],
    tools: tuple[str, ...],
    out: Path | None,
    share: bool,
    archive: bool,
    as_json: bool,
    pictures: bool,
    **heading: Any,  # title and times: parameters of the functions that write a page
) -> None:
    """Write the report of RUN_DIR as HTML and Markdown, and print its answers.

    RUN_DIR is a run directory, any folder with .etdump files, or a folder of runs. Several runs get one page;
    for a verdict on what changed between two, use `sme2prof compare`. `sme2prof view` opens the same page in
    the browser. --share and --zip write what you can send of one run: figures, operators, kernels and the
    kind of machine, without your names, paths, commands and logs.
    """
    folders, run_dirs = run_dirs, expand_runs(run_dirs)
    share = share or archive
    if share and tools:
        raise click.UsageError(
            "--for makes files that hold paths and source lines: leave out --share and --zip"
        )
    if share and len(run_dirs) > 1:
        raise click.UsageError("--share and --zip take one run: name one")
    with shown_progress():
        if share:
            from model_profiling.workflow.share import share_report

            shared = share_report(run_dirs[0], out, **heading, archive=archive)
            _say_shared(shared, as_json)
            return
        if len(run_dirs) == 1:
            path, data = write_report(run_dirs[0], out=out, pictures=pictures, **heading)
            runs = [data]
        else:
            # In the folder that holds them all, or here.
            path = out or (folders[0] if len(folders) == 1 else Path()) / names.COMBINED
            runs = write_combined_report(run_dirs, path, pictures=pictures, **heading)
        tool_files = [made for data in runs for made in write_for_tools(data, tools)] if tools else []
    if as_json:
        of_tools = {"for_tools": [asdict(made) for made in tool_files]} if tool_files else {}
        frame.facts({"schema_version": 1, **page_facts(path), **_facts(runs), **of_tools})
        return
    _print(runs, path, tool_files)


def _print(runs: Sequence[ReportData], path: Path, tool_files: Sequence[ToolFiles]) -> None:
    for data in runs:
        if len(runs) > 1:
            frame.say(f"{data.title} ({data.run.path})")
        print_answers(answers(data))
        if len(runs) > 1:
            frame.say()
    for written in pages(path):
        frame.say_wrote(written)
    for made in tool_files:
        if made.left_out:
            frame.warn(f"nothing for {made.tool}: {made.left_out}")
        else:
            place = made.files[0] if len(made.files) == 1 else made.files[0].parent
            frame.say(f"{made.tool}: {place} ({made.opens})")


def _facts(runs: Sequence[ReportData]) -> dict[str, object]:
    verdicts = [answers(data).facts() for data in runs]
    outlooks = [outlook_facts(data.outlook) for data in runs]
    if len(runs) == 1:
        return {**verdicts[0], **outlooks[0]}
    return {**{key: [facts[key] for facts in verdicts] for key in verdicts[0]}, "sme2": outlooks}


def _say_shared(shared: Shared, as_json: bool) -> None:
    if as_json:
        frame.facts(
            {
                "schema_version": 1,
                "zip" if shared.files else "report": str(shared.path),
                "files": list(shared.files),
                "renamed": dict(shared.renamed),
            }
        )
        return
    if shared.renamed:
        frame.table(("experiment", "called"), list(shared.renamed.items()))
    if shared.files:
        frame.say_wrote(shared.path, f": {plural(len(shared.files), 'file')}")
    for written in pages(shared.path) if not shared.files else ():
        frame.say_wrote(written)


@frame.command(
    "view",
    example="""sme2prof view out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof view out_toy_cnn/runs
    sme2prof view out_toy_cnn/runs --no-browser
    sme2prof view sme2prof.db""",
    facts=True,
)
@click.argument("place", metavar="RUN_DIR|FOLDER|STORE", type=click.Path(path_type=str))
@click.option("--out", type=frame.FILE, help="Write the page to this file and open it.")
@click.option("--no-browser", is_flag=True, help="Only make the page and print where it is.")
def view_command(place: str, out: Path | None, no_browser: bool, as_json: bool) -> None:
    """Open a run, a folder of runs or a store in the browser.

    A run opens as its report, the page that `sme2prof report` writes; a folder or a store as a list of its
    runs. The page is always made again, because one that came with a run could contain foreign scripts.
    Without a browser (ssh, CI, no display) it prints where the page is.
    """
    from model_profiling.workflow.view import open_page, page_to_view

    with shown_progress():
        page = page_to_view(place, out)
    reason = "--no-browser" if no_browser else open_page(page.path)
    if as_json:
        frame.facts(
            {
                "schema_version": 1,
                "page": str(page.path.resolve()),
                "opened": reason is None,
                "not_opened_because": reason,
                "runs": [str(run_dir) for run_dir in page.runs],
                "problems": list(page.problems),
            }
        )
        return
    for problem in page.problems:
        frame.warn(problem)
    where = page.path.resolve()
    if reason is None:
        frame.say(f"opened {where}")
    elif no_browser:
        frame.say(str(where))
    else:
        frame.say(f"not opened, {reason}: {where}")


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
    with shown_progress(quiet=quiet):
        analysis = analyse(run_dir, **sources)
        data = report_data(analysis.run, analysis)
        written, summary = write_summary(data, analysis, out)
    if as_json:
        frame.facts(summary | {"files": [str(path) for path in written]})
        return
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
