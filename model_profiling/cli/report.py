"""`sme2prof report`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.answers import page_facts, pages, print_answers
from model_profiling.cli.progress import shown_progress
from model_profiling.report.headroom_json import outlook_facts
from model_profiling.report.verdict import answers
from model_profiling.run import Times
from model_profiling.run.factors import Factors
from model_profiling.workflow.measure import use_factors
from model_profiling.workflow.report import write_combined_report, write_report


@frame.command(
    "report",
    example="""sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof report folder_with_dumps --out toy.md --title "Toy CNN, first look"
    sme2prof report runs/xnnpack_fp16/linux runs/xnnpack_int8/linux --out both.md""",
    facts=True,
)
@click.argument("run_dirs", metavar="RUN_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write [default: RUN_DIR/report.md].")
@click.option("--title", help="The first heading [default: the model and where it ran].")
@frame.times_option
@frame.factor_option
def command(  # noqa: PLR0917  click passes every option by name
    run_dirs: tuple[Path, ...],
    out: Path | None,
    title: str | None,
    times: Times | None,
    factors: Factors | None,
    as_json: bool,
) -> None:
    """Write the report of RUN_DIR as HTML and Markdown, and print its answers; several get one page.

    RUN_DIR is a run directory, or any folder with .etdump files. What is missing is said in the report;
    times of emulated and traced runs are never shown as latencies.
    """
    if len(run_dirs) > 1 and out is None:
        raise click.UsageError("several runs go into one page: name it with --out")
    with shown_progress() as progress:
        if factors is not None:
            for run_dir in run_dirs:
                use_factors(run_dir, factors)
        if len(run_dirs) == 1:
            path, data = write_report(run_dirs[0], out=out, title=title, times=times, progress=progress)
            runs = [data]
        else:
            assert out is not None
            path, runs = (
                out,
                write_combined_report(run_dirs, out, title=title, times=times, progress=progress),
            )
    if factors is not None:
        frame.warn_without_projection(data.outlook for data in runs)
    if as_json:
        told = [answers(data).facts() for data in runs]
        found = told[0] if len(runs) == 1 else {key: [each[key] for each in told] for key in told[0]}
        outlooks = [outlook_facts(data.outlook) for data in runs]
        projected = outlooks[0] if len(runs) == 1 else {"sme2": outlooks}
        frame.facts({"schema_version": 1, **page_facts(path), **found, **projected})
        return
    for data in runs:
        if len(runs) > 1:
            frame.say(f"{data.title} ({data.run.path})")
        print_answers(answers(data))
        if len(runs) > 1:
            frame.say()
    for written in pages(path):
        frame.say(f"wrote {written}")
