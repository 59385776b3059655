"""`sme2prof view`."""

from __future__ import annotations

from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.cli.progress import shown_progress
from model_profiling.workflow.view import open_page, page_to_view


@frame.command(
    "view",
    example="""sme2prof view out_toy_cnn/runs/xnnpack_fp16/linux
    sme2prof view out_toy_cnn/runs
    sme2prof view out_toy_cnn/runs --no-browser
    sme2prof view sme2prof_store""",
    facts=True,
)
@click.argument("place", metavar="RUN_DIR|FOLDER|STORE", type=click.Path(path_type=str))
@click.option("--out", type=frame.FILE, help="Write the page to this file and open that one.")
@click.option("--no-browser", is_flag=True, help="Only make the page, and say where it is.")
def command(place: str, out: Path | None, no_browser: bool, as_json: bool) -> None:
    """Open the report of a run in the browser; of a folder of runs, a page that lists them all; of a store,
    one that shows every latency over the runs and what changed.

    The page is always made anew: one that came with a run may hold any program. Where there is no browser
    (ssh, CI, no display) the page's place is said.
    """
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
