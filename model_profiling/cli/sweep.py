"""`sme2prof sweep` and `worker`."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_profiling.cli import frame
from model_profiling.cli.frame import page_facts, pages
from model_profiling.core.formatting import duration, listing, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from model_profiling.config.sweep import SweepConfig
    from model_profiling.sweep.cells import CellRecord, SweepFolder, SweepJob
    from model_profiling.sweep.dispatch import SweepOptions

_MOST_ROWS = 40


@frame.command(
    "sweep",
    example="""sme2prof sweep nightly.json --dry-run
    sme2prof sweep nightly.json
    sme2prof sweep nightly.json --scheduler 127.0.0.1:8786 --store /data/runs.db""",
    facts=True,
)
@click.argument("file", metavar="SWEEP.json", type=frame.PATH)
@click.option("--dry-run", is_flag=True, help="Only show what would be measured, and how long it takes.")
@click.option("--outdir", type=frame.FOLDER, show_default="sweep_NAME", help="Folder for all results.")
@click.option("--scheduler", metavar="ADDRESS", help="Let the workers of this Dask scheduler measure.")
@click.option(
    "--store",
    metavar="STORE",
    show_default="the sweep file's, else as for `sme2prof store`",
    help="Add the runs to this store.",
)
@click.option("--no-store", is_flag=True, help="Do not add the runs to a store.")
@click.option("--resume", is_flag=True, help="Continue the sweep that is there; what failed is tried again.")
@frame.quiet_option
def sweep_command(
    *,
    file: Path,
    dry_run: bool,
    outdir: Path | None,
    scheduler: str | None,
    store: str | None,
    no_store: bool,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Measure every combination in SWEEP.json: models, dtypes, threads, CPU features, targets.

    Only one process measures on a device at a time. If a cell fails, the reason is kept and the others go on.
    Without --scheduler, this machine measures, with the devices it reaches. To compare the number formats of
    one model, use `sme2prof profile MODEL --dtype all`.
    """
    if no_store and store is not None:
        raise click.UsageError("give only one of --store and --no-store")
    from model_profiling.config.sweep import load_sweep
    from model_profiling.sweep.cells import jobs

    sweep = load_sweep(file)
    folder = outdir or Path(f"sweep_{sweep.name}")
    planned = jobs(sweep)
    if dry_run:
        _show_plan(sweep, folder, planned, as_json=as_json)
        return 0
    from model_profiling.store.store import Store
    from model_profiling.sweep.dispatch import SweepOptions, run_sweep

    if not quiet and not as_json:
        frame.say(f"{_in_short(planned)}\n")
    opened = None if no_store else Store.open(store or sweep.store, make=True)
    options = SweepOptions(folder, scheduler, resume=resume, store=opened)
    words = [word for word in frame.command_line() if word != "--resume"]
    advice = f"every cell that ended is kept; continue with: {shlex.join([*words, '--resume'])}"
    with frame.measuring(advice, quiet=quiet):
        ended = run_sweep(sweep, options)
        return _show(ended, options, quiet=quiet, as_json=as_json)


def _in_short(planned: Sequence[SweepJob]) -> str:
    from model_profiling.sweep.cells import sweep_seconds

    cells = plural(sum(len(job.cells) for job in planned), "cell")
    targets = listing(dict.fromkeys(job.target for job in planned))
    seconds, unlimited = sweep_seconds(planned), sum(job.seconds is None for job in planned)
    time = f"; measuring takes about {duration(seconds)}" if seconds else ""
    more = f"; how long {plural(unlimited, 'run')} will take is not known" if unlimited else ""
    return f"{cells} in {plural(len(planned), 'run')} on {targets}{time}{more}"


def _show_plan(sweep: SweepConfig, outdir: Path, planned: Sequence[SweepJob], *, as_json: bool) -> None:
    from model_profiling.sweep.cells import all_cells, sweep_seconds

    cells = all_cells(sweep)
    if as_json:
        runs = [
            {"run_dir": job.run_dir, "target": job.target, "cells": len(job.cells), "seconds": job.seconds}
            for job in planned
        ]
        facts = {"schema_version": 1, "name": sweep.name, "outdir": str(outdir), "runs": runs}
        listed = [_cell_facts(cell) for cell in cells]
        frame.facts({**facts, "cells": listed, "seconds": sweep_seconds(planned)})
        return
    columns = ("program", "target", "threads", "rungs", "cells", "time")
    frame.table(columns, [_plan_row(job) for job in planned[:_MOST_ROWS]])
    if planned[_MOST_ROWS:]:
        frame.say(f"... and {plural(len(planned) - _MOST_ROWS, 'run')} more; --json lists all")
    frame.say()
    for reason, count in Counter(cell.reason for cell in cells if cell.state == "left out").items():
        frame.say(f"left out: {plural(count, 'cell')} ({reason})")
    frame.say(_in_short(planned))
    frame.say(f"next: {shlex.join(word for word in frame.command_line() if word != '--dry-run')}")


def _plan_row(job: SweepJob) -> tuple[str, ...]:
    return (
        job.cells[0].run_name,
        job.target,
        ", ".join(map(str, job.sweep.threads)),
        ", ".join(rung.name for rung in job.sweep.rungs),
        str(len(job.cells)),
        "not known" if job.seconds is None else duration(job.seconds),
    )


def _cell_facts(cell: CellRecord) -> dict[str, object]:
    ended = {"reason": cell.reason or None, "fix": cell.fix or None, "run_dir": cell.run_dir}
    return {"id": cell.cell.id, **cell.cell.values, "state": cell.state, **ended}


def _show(folder: SweepFolder, options: SweepOptions, *, quiet: bool, as_json: bool) -> int:
    """Write the page and print the outcome; the exit code is 2 if a cell failed."""
    from model_profiling.report.combined import latency_blocks
    from model_profiling.report.document import render_terminal
    from model_profiling.sweep.dispatch import failures, sweep_title, write_sweep_report

    record = folder.record
    page, runs = write_sweep_report(folder.path, record)
    store = options.store.address if options.store else None
    if as_json:
        facts = {"schema_version": 1, "name": record.name, "outdir": str(folder.path), "store": store}
        cells = [_cell_facts(cell) for cell in record.cells]
        ended = {"counts": record.counts(), "cells": cells}
        frame.facts({**facts, **ended} | page_facts(page))
    else:
        if runs and not quiet:
            frame.say(render_terminal(latency_blocks(runs[:_MOST_ROWS])) + "\n")
        frame.say(sweep_title(record))
        if folder.moved is not None and not quiet:
            frame.say(f"The earlier sweep is kept in {folder.moved}")
        if store and not quiet:
            frame.say(f"Store: {store}")
        for path in pages(page):
            frame.say(f"Report: {path}")
    for line in failures(record):
        frame.fail(line)
    return 2 if failures(record) else 0


@frame.command(
    "worker",
    example="""sme2prof worker --scheduler 127.0.0.1:8786 --target host
    sme2prof worker --scheduler 127.0.0.1:8786 --target android:R5CT1234ABC --target ssh:board
    sme2prof worker --scheduler tls://lab:8786 --listen 192.0.2.7 --target emulated""",
)
@click.option("--scheduler", required=True, metavar="ADDRESS", help="The Dask scheduler, as HOST:PORT.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    metavar="host|emulated|android:SERIAL|ssh:HOST",
    help="Offer this machine, emulation, a phone or another machine (repeatable).",
)
@click.option("--name", show_default="the machine's name and a number", help="Name of this worker.")
@click.option(
    "--listen", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where others reach it."
)
def worker_command(*, scheduler: str, targets: tuple[str, ...], name: str | None, listen: str) -> int:
    """Work for sweeps until interrupted: measure on the devices named here.

    Everybody who reaches the scheduler can run code here; docs/how-to/sweeps.md says how to protect it.
    """
    from model_profiling.sweep.worker import run_worker

    run_worker(scheduler, targets, name, listen, frame.say)
    return 0
