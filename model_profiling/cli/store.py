"""`sme2prof store add|list|tag|remove`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.core.formatting import plural

_MOST_SHOWN = 10_000


@frame.command(
    "add",
    example="""sme2prof store add out_toy_cnn/runs
    sme2prof store add out_toy_cnn/runs/xnnpack_fp16/linux --tag release-1.2 --store team.db""",
    facts=True,
)
@click.argument("run_dirs", nargs=-1, required=True, metavar="RUN_DIR...", type=frame.PATH)
@frame.store_option
@click.option("--commit", show_default="CI's, else git's here", help="Commit of the code that was measured.")
@click.option("--branch", show_default="CI's, else git's here", help="Branch of that commit.")
@click.option("--tag", "tags", multiple=True, help="Tag for the runs (repeatable).")
@click.option(
    "--device", metavar="NAME", show_default="its CPU and cores", help="This machine's name in the store."
)
def add(
    *,
    run_dirs: tuple[Path, ...],
    store: str | None,
    as_json: bool,
    **labels: Any,  # fields of Labels, typed by click
) -> int:
    """Add the runs in each RUN_DIR and in the folders below it.

    A run that is added again, even from another folder, is kept once; one that was continued since is
    updated. If a run cannot be added, the others are, and it exits with 1.
    """
    from model_profiling.cli.progress import shown_progress
    from model_profiling.store.labels import Labels
    from model_profiling.store.store import Store

    with shown_progress() as progress:
        opened = Store.open(store, make=True)
        added = opened.add(run_dirs, Labels(**labels), progress)
    if as_json:
        frame.facts({"schema_version": 1, "store": opened.address, **asdict(added)})
        return 1 if added.refused else 0
    for run in added.runs:
        frame.say(f"{run.run_id[:12]}  {run.outcome}: {run.run_dir}")
    for refused in added.refused:
        frame.fail(f"{refused.run_dir} is not added: {refused.problem}; {refused.fix}")
    known = len(added.runs) - len(added.new)
    frame.say(f"{opened.address}: {plural(len(added.new), 'run')} added, {known} known")
    return 1 if added.refused else 0


@frame.command(
    "list",
    example="""sme2prof store list
    sme2prof store list --model toy_cnn --tag release-1.2 --json""",
    facts=True,
)
@frame.store_option
@click.option("--model", help="Only runs of this model.")
@click.option("--device", metavar="NAME", help="Only runs of this device.")
@click.option("--tag", help="Only runs with this tag.")
@click.option(
    "--last",
    type=click.IntRange(1, _MOST_SHOWN),
    default=50,
    show_default=True,
    help="How many.",
)
def list_runs(*, store: str | None, last: int, as_json: bool, **wanted: Any) -> None:
    """List the runs of a store, the newest first."""
    from model_profiling.runs.times import NOT_ARM, marked
    from model_profiling.store.store import Store, list_runs

    opened = Store.open(store)
    runs, matching = list_runs(opened, **wanted, last=last)
    if as_json:
        frame.facts({"schema_version": 1, "store": opened.address, "matching": matching, "runs": runs})
        return
    if not runs:
        frame.say(f"{opened.address} {'holds no such run' if any(wanted.values()) else 'is empty'}")
        return
    rows = [
        (
            run["run_id"][:12],
            f"{run['measured_at']:%Y-%m-%d %H:%M}" if run["measured_at"] else "",
            run["name"],
            run["device"],
            "" if run["median_ms"] is None else marked(f"{run['median_ms']:.3f}", run["is_arm"]),
            f"{run['commit_hash'][:10]}{'+' if run['dirty'] else ''}",
            run["state"],
            " ".join(sorted(run["tags"])),
        )
        for run in runs
    ]
    frame.table(("RUN", "MEASURED (UTC)", "NAME", "DEVICE", "MEDIAN MS", "COMMIT", "STATE", "TAGS"), rows)
    if any(run["is_arm"] is False and run["median_ms"] is not None for run in runs):
        frame.say(NOT_ARM)
    if matching > len(rows):
        frame.say(f"{matching - len(rows):,} older runs are not shown; --last {matching} shows all")


@frame.command(
    "tag",
    example="""sme2prof store tag 3f2a9c release-1.2
    sme2prof store tag 3f2a9c bad --note "the phone was charging"
    sme2prof store tag 3f2a9c bad --remove""",
)
@click.argument("run")
@click.argument("tags", nargs=-1, required=True, metavar="TAG...")
@frame.store_option
@click.option("--note", default="", help="A reason to keep with the tag.")
@click.option("--remove", is_flag=True, help="Remove the tags.")
def tag_run(*, run: str, tags: tuple[str, ...], store: str | None, note: str, remove: bool) -> None:
    """Add tags to RUN, the beginning of a run's id, or remove them.

    A run tagged `bad` is never used as the last good one.
    """
    from model_profiling.store.store import Store

    opened = Store.open(store)
    run_id = opened.find(run)
    opened.tag([run_id], tags, note=note, remove=remove)
    frame.say(f"{run_id[:12]}: {'no longer' if remove else 'now'} {', '.join(tags)}")


@frame.command("remove", example="sme2prof store remove 3f2a9c")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@frame.store_option
def remove_runs(*, runs: tuple[str, ...], store: str | None) -> None:
    """Remove each RUN, the beginning of a run's id, from a store; its run directory stays as it is."""
    from model_profiling.store.store import Store

    opened = Store.open(store)
    run_ids = [opened.find(run) for run in runs]
    opened.remove(run_ids)
    frame.say(f"{opened.address}: {plural(len(run_ids), 'run')} removed")


store_command = frame.group(
    "store",
    "Keep many runs in one database: add, list, tag and remove them.",
    [add, list_runs, tag_run, remove_runs],
    example="sme2prof store add out_toy_cnn/runs",
)
