"""`sme2prof report`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import for_tools, frame
from model_profiling.cli.progress import shown_progress
from model_profiling.report.headroom_json import outlook_facts
from model_profiling.report.verdict import verdict
from model_profiling.run import Times
from model_profiling.run.factors import Factors
from model_profiling.workflow.measure import use_factors
from model_profiling.workflow.report import write_combined_report, write_report


@frame.command(
    "report",
    example="""sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof report folder_with_dumps --out toy.md --title "Toy CNN, first look"
    sme2prof report runs/xnnpack_fp16/linux runs/xnnpack_int8/linux --out both.md
    sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux --for perfetto,speedscope""",
    facts=True,
)
@click.argument("run_dirs", metavar="RUN_DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write [default: RUN_DIR/report.md].")
@click.option("--title", help="The first heading [default: the model and where it ran].")
@for_tools.tools_option
@frame.times_option
@frame.factor_option
def command(  # noqa: PLR0917  click passes every option by name
    run_dirs: tuple[Path, ...],
    out: Path | None,
    title: str | None,
    tools: tuple[str, ...],
    times: Times | None,
    factors: Factors | None,
    as_json: bool,
) -> None:
    """Write the report of RUN_DIR as Markdown, and print its verdict; several get one page side by side.

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
        made = for_tools.write_asked(runs, tools)
    if factors is not None:
        frame.warn_without_projection(data.outlook for data in runs)
    for_tools.tell_github((data, path) for data in runs)
    if as_json:
        sentences = [verdict(data) for data in runs]
        found = sentences[0] if len(runs) == 1 else sentences
        outlooks = [outlook_facts(data.outlook) for data in runs]
        projected = outlooks[0] if len(runs) == 1 else {"sme2": outlooks}
        frame.facts(
            {
                "schema_version": 1,
                "report": str(path),
                "verdict": found,
                **projected,
                **for_tools.tool_facts(made),
            }
        )
        return
    for data in runs:
        for sentence in verdict(data):
            frame.say(sentence)
    frame.say(f"wrote {path}")
    for_tools.print_made(made)
