"""`sme2prof report`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.report.verdict import verdict
from model_profiling.run import Times
from model_profiling.workflow.report import write_report


@frame.command(
    "report",
    example="""sme2prof report out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof report folder_with_dumps --out toy.md --title "Toy CNN, first look\"""",
    facts=True,
)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="File to write [default: RUN_DIR/report.md].")
@click.option("--title", help="The first heading [default: the model and where it ran].")
@frame.times_option
def command(run_dir: Path, out: Path | None, title: str | None, times: Times | None, as_json: bool) -> None:
    """Write the report of RUN_DIR as Markdown, and print its verdict.

    RUN_DIR is a run directory, or any folder with .etdump files. What is missing is said in the report;
    times of emulated and traced runs are never shown as latencies.
    """
    with shown_progress() as progress:
        path, data = write_report(run_dir, out=out, title=title, times=times, progress=progress)
    sentences = verdict(data)
    if as_json:
        frame.facts({"schema_version": 1, "report": str(path), "verdict": list(sentences)})
        return
    for sentence in sentences:
        frame.say(sentence)
    frame.say(f"wrote {path}")
