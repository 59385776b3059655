"""`sme2prof report`, `bundle` and `view`: show a run, and send it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import for_tools, frame
from model_profiling.cli.for_tools import page_facts, pages, print_answers
from model_profiling.cli.progress import shown_progress
from model_profiling.core import files
from model_profiling.core.formatting import plural
from model_profiling.report.headroom import outlook_facts
from model_profiling.report.verdict import answers
from model_profiling.run.evidence import Factors
from model_profiling.run.folders import expand_runs
from model_profiling.workflow.bundle import Bundle, Shared, share_report, write_bundle
from model_profiling.workflow.measure import use_factors
from model_profiling.workflow.report import combined_page, write_combined_report, write_report
from model_profiling.workflow.scrubbed_copy import ShareOptions

if TYPE_CHECKING:
    from model_profiling.report.data import ReportData
    from model_profiling.report.scrubbing import Replaced


# Shared by `report --share` and `bundle`.


def scrub_options(function: frame.Function) -> frame.Function:
    rename = click.option("--rename", metavar="NAME", help="Call the model NAME in the copy.")
    keep = click.option(
        "--keep",
        multiple=True,
        metavar="WORD",
        help="Do not replace this word: it is not private (repeatable).",
    )
    return rename(keep(function))


def say_replaced(replaced: Sequence[Replaced]) -> None:
    """List what was replaced, with the originals: the person at this terminal has to check it."""
    from model_profiling.report.scrubbing import left_out_lines

    rows = [(found.placeholder, found.kind, found.original) for found in replaced if found.placeholder]
    if rows:
        frame.table(("placeholder", "kind", "replaced"), rows)
    for line in left_out_lines(replaced):
        frame.say(f"left out: {line}")
    if not replaced:
        frame.say("nothing had to be replaced")


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
    show_default="RUN_DIR/report.md; for several runs combined_report.md",
    help="File to write.",
)
@click.option("--title", show_default="the model and where it ran", help="The first heading.")
@for_tools.tools_option
@click.option(
    "--share", is_flag=True, help="Write shared_report.html instead: a copy to send, without private details."
)
@scrub_options
@frame.times_option
@frame.factor_option
def report_command(
    *,
    run_dirs: tuple[Path, ...],
    tools: tuple[str, ...],
    out: Path | None,
    factors: Factors | None,
    share: bool,
    rename: str | None,
    keep: tuple[str, ...],
    as_json: bool,
    **asked: Any,  # title and times: parameters of the functions that write a page
) -> None:
    """Write the report of RUN_DIR as HTML and Markdown, and print its answers.

    RUN_DIR is a run directory, any folder with .etdump files, or a folder of runs. Several runs get one page;
    for a verdict on what changed between two, use `sme2prof compare`. `sme2prof view` opens the same page in
    the browser. --share writes one page to send; `sme2prof bundle` packs the whole run.
    """
    named, run_dirs = run_dirs, expand_runs(run_dirs)
    if (rename or keep) and not share:
        raise click.UsageError("--rename and --keep need --share")
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


@frame.command(
    "bundle",
    example="""sme2prof bundle out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof bundle out_toy_cnn/runs/xnnpack_fp16/linux --out for_the_issue.zip --rename some_model""",
    facts=True,
)
@click.argument("run_dir", metavar="RUN_DIR", type=frame.PATH)
@click.option("--out", type=frame.FILE, show_default="MODEL_PLATFORM_bundle.zip", help="File to write.")
@click.option("--with-program", is_flag=True, help="Also pack the .pte, which holds the model's weights.")
@scrub_options
def bundle_command(
    *, run_dir: Path, out: Path | None, with_program: bool, as_json: bool, **scrubbing: Any
) -> None:
    """Pack the run in RUN_DIR for a bug report, and list what is in it and what was left out.

    Paths, names of people and machines, serials and source text are replaced in every file, and the result is
    checked. Unpacked, it is a run directory with the same figures. `sme2prof report --share` writes only the
    page.
    """
    with shown_progress() as progress:
        progress.stage("packing")
        options = ShareOptions(**scrubbing)
        bundle = write_bundle(run_dir, out, options=options, with_program=with_program, progress=progress)
    if not as_json:
        _say(bundle)
        return
    frame.facts(
        {
            "schema_version": 1,
            "bundle": str(bundle.path),
            "files": list(map(asdict, bundle.files)),
            "left_out": [{"file": name, "why": why} for name, why in bundle.left_out],
            "replaced": list(map(asdict, bundle.replaced)),
        }
    )


def _say(bundle: Bundle) -> None:
    kinds: dict[tuple[str, str], list[int]] = {}
    for found in bundle.files:
        ending = Path(found.name).suffix
        # One line for each file at the top level, one for each kind of file below it.
        name = found.name if "/" not in found.name else f"*/*{ending}"
        kinds.setdefault((name, found.what), []).append(found.bytes)
    rows = [(str(len(sizes)), f"{sum(sizes):,}", name, what) for (name, what), sizes in kinds.items()]
    frame.table(("files", "bytes", "name", "holds"), rows)
    for name, why in bundle.left_out:
        frame.say(f"left out: {name} ({why})")
    say_replaced(bundle.replaced)
    size = "" if files.is_stream(bundle.path) else f", {bundle.path.stat().st_size:,} bytes"
    frame.say_wrote(bundle.path, f": {plural(len(bundle.files), 'file')}{size}")


@frame.command(
    "view",
    example="""sme2prof view out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof view out_toy_cnn/runs
    sme2prof view out_toy_cnn/runs --no-browser
    sme2prof view sme2prof_store""",
    facts=True,
)
@click.argument("place", metavar="RUN_DIR|FOLDER|STORE", type=click.Path(path_type=str))
@click.option("--out", type=frame.FILE, help="Write the page to this file and open it.")
@click.option("--no-browser", is_flag=True, help="Only make the page and print where it is.")
def view_command(place: str, out: Path | None, no_browser: bool, as_json: bool) -> None:
    """Open a run, a folder of runs or a store in the browser.

    A run opens as its report, the page that `sme2prof report` writes; a folder as a list of its runs; a store
    as every latency over time. The page is always made again, because one that came with a run could contain
    foreign scripts. Without a browser (ssh, CI, no display) it prints where the page is.
    """
    from model_profiling.workflow.view import open_page, page_to_view

    with shown_progress() as progress:
        page = page_to_view(place, out, progress)
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
