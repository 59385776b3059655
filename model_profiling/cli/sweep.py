"""`sme2prof sweep` and `worker`."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame
from model_profiling.cli.for_tools import page_facts, pages
from model_profiling.cli.progress import measuring
from model_profiling.core.formatting import duration, listing, plural, size

if TYPE_CHECKING:
    from model_profiling.config.sweep import SweepConfig
    from model_profiling.sweep.cells import CellRecord, JobCost, SweepCost
    from model_profiling.sweep.engine import SweepOutcome
    from model_profiling.sweep.report import Row, SweepResult


_MOST_ROWS = 40


@frame.command(
    "sweep",
    example="""sme2prof sweep nightly.json --dry-run
    sme2prof sweep nightly.json
    sme2prof sweep nightly.json --scheduler 127.0.0.1:8786 --store /data/runs""",
    facts=True,
)
@click.argument("file", metavar="SWEEP.json", type=frame.PATH)
@click.option("--dry-run", is_flag=True, help="Only show what would be measured, and how long it takes.")
@click.option("--outdir", type=frame.FOLDER, show_default="sweep_NAME", help="Folder for all results.")
@click.option("--scheduler", metavar="HOST:PORT", help="Let the workers of this Dask scheduler measure.")
@click.option("--tls-ca", type=frame.PATH, help="CA certificate for the scheduler.")
@click.option("--tls-cert", type=frame.PATH, help="Your certificate for the scheduler.")
@click.option("--tls-key", type=frame.PATH, help="The key of your certificate.")
@click.option(
    "--store",
    metavar="FOLDER",
    show_default="the sweep file's, else as for `sme2prof store`",
    help="Add the runs to this store.",
)
@click.option("--no-store", is_flag=True, help="Do not add the runs to a store.")
@click.option(
    "--device-wait",
    type=frame.FloatRange(0),
    metavar="SECONDS",
    default=300.0,
    show_default="300",
    help="How long to wait for a device that no worker offers.",
)
@frame.resume_options(
    "Continue an unfinished sweep; what failed is tried again.",
    "Start again; an unfinished sweep is kept under its date.",
    "--restart",  # elsewhere --force replaces, but here nothing is lost
)
@frame.quiet_option
def sweep_command(
    *,
    file: Path,
    dry_run: bool,
    outdir: Path | None,
    scheduler: str | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    store: str | None,
    no_store: bool,
    device_wait: float,
    resume: bool,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Measure every combination in SWEEP.json: models, dtypes, threads, CPU features, targets.

    Only one process measures on a device at a time, and the runs on it take turns. If one fails, the reason
    is kept and the others go on. Without --scheduler, this machine measures, with the devices it reaches. To
    compare the number formats of one model, use `sme2prof profile MODEL --dtype all`.
    """
    if no_store and store is not None:
        raise click.UsageError("give only one of --store and --no-store")
    from model_profiling.config.sweep import load_sweep
    from model_profiling.sweep.cells import ARTIFACTS, check_cases, jobs, sweep_cost
    from model_profiling.sweep.report import check_store
    from model_profiling.sweep.worker import parse_scheduler, parse_tls

    tls = parse_tls(tls_ca, tls_cert, tls_key)
    if tls is not None and scheduler is None:
        raise click.UsageError("--tls-ca, --tls-cert and --tls-key need --scheduler")
    where = parse_scheduler(scheduler, tls) if scheduler is not None else None
    frame.warn_of_skipped_models()
    sweep = load_sweep(file)
    folder = outdir or Path(f"sweep_{sweep.name}")
    check_cases(jobs(sweep))
    cost = sweep_cost(jobs(sweep), folder / ARTIFACTS)
    if dry_run:
        _show_plan(sweep, folder, cost, alone=where is None, as_json=as_json)
        return 0
    from model_profiling.sweep.engine import SweepOptions, run_sweep
    from model_profiling.sweep.report import conclude

    if not quiet and not as_json:
        frame.say(f"{_in_short(cost, alone=where is None)}\n")
    opened = None if no_store else check_store(store or sweep.store)
    options = SweepOptions(folder, where, resume=resume, force=force, device_wait_s=device_wait, store=opened)
    words = [word for word in frame.command_line() if word not in ("--restart", "--force", "--resume")]
    kept = f"every launch that ended is kept; continue with: {shlex.join([*words, '--resume'])}"
    with measuring(kept, quiet=quiet) as progress:
        outcome = run_sweep(sweep, options, progress)
        concluded = conclude(outcome.folder, outcome.record, options.store, progress)
    return _show(outcome, concluded, quiet=quiet, as_json=as_json)


def _in_short(cost: SweepCost, *, alone: bool) -> str:
    cells = sum(len(each.job.cells) for each in cost.jobs)
    targets = listing(dict.fromkeys(each.job.target for each in cost.jobs))
    known = cost.seconds(alone=alone)
    exports = f"{plural(cost.exports, 'program')} to export; " if cost.exports else ""
    time = f"measuring takes about {duration(known)}" if known else "how long it takes is not known"
    open_ones = f"; of {plural(cost.unknown, 'run')} no time is known yet" if known and cost.unknown else ""
    cells_on = f"{plural(cells, 'cell')} in {plural(len(cost.jobs), 'run')} on {targets}"
    return f"{cells_on}; {exports}{time}{open_ones}"


def _show_plan(sweep: SweepConfig, outdir: Path, cost: SweepCost, *, alone: bool, as_json: bool) -> None:
    from model_profiling.sweep.cells import all_cells
    from model_profiling.sweep.folder import is_unfinished

    cells = all_cells(sweep)
    if as_json:
        facts = _plan_facts(cost, cells, alone=alone)
        frame.facts({"schema_version": 1, "name": sweep.name, "outdir": str(outdir), **facts})
        return
    rows = [_plan_row(each) for each in cost.jobs]
    frame.table(
        ("program", "target", "threads", "rungs", "cells", "launches", "time", "disk"), rows[:_MOST_ROWS]
    )
    if rows[_MOST_ROWS:]:
        frame.say(f"... and {plural(len(rows) - _MOST_ROWS, 'run')} more; --json lists all")
    frame.say()
    for reason, count in Counter(each.reason for each in cells if each.state == "left out").items():
        frame.say(f"left out: {plural(count, 'cell')} ({reason})")
    if any(each.unknown for each in cost.jobs):
        frame.say("?: " + listing(dict.fromkeys(each.unknown for each in cost.jobs if each.unknown)))
    frame.say(_in_short(cost, alone=alone))
    words = [word for word in frame.command_line() if word != "--dry-run"]
    if is_unfinished(outdir) and not {"--resume", "--restart", "--force"} & set(words):
        words.append("--resume")
    frame.say(f"next: {shlex.join(words)}")


def _plan_row(cost: JobCost) -> tuple[str, ...]:
    job = cost.job
    least, most = cost.launches
    return (
        job.cells[0].run_name,
        job.target,
        ", ".join(map(str, dict.fromkeys(cell.threads for cell in job.cells))),
        ", ".join(rung.name for rung in job.rungs),
        str(len(job.cells)),
        str(least) if least == most else f"{least} to {most}",
        "?" if cost.seconds is None else duration(cost.seconds),
        "?" if cost.bytes is None else size(cost.bytes),
    )


def _plan_facts(cost: SweepCost, cells: tuple[CellRecord, ...], *, alone: bool) -> dict[str, object]:
    return {
        "cells": [_cell_facts(each) for each in cells],
        "runs": [
            {
                "run_dir": each.job.run_dir,
                "program": each.job.program.name,
                "case": each.job.case.name,
                "target": each.job.target,
                "cells": len(each.job.cells),
                "launches_at_least": each.launches[0],
                "launches_at_most": each.launches[1],
                "seconds": each.seconds,
                "bytes": each.bytes,
                "unknown": each.unknown or None,
            }
            for each in cost.jobs
        ],
        "exports": cost.exports,
        "seconds": cost.seconds(alone=alone),
        "runs_without_known_time": cost.unknown,
        "bytes": cost.bytes,
    }


def _cell_facts(each: CellRecord) -> dict[str, object]:
    return {
        "id": each.cell.id,
        **each.cell.values,
        "state": each.state,
        "reason": each.reason or None,
        "fix": each.fix or None,
        "run_dir": each.run_dir,
    }


def _results(row: Row | None) -> dict[str, object]:
    latency = row.latency if row else None
    return {
        "median_ms": latency and latency.median,
        "tokens_per_s": row and row.tokens_per_s,
        "sme2_arithmetic_share": row and row.sme2_share,
    }


def _show(outcome: SweepOutcome, concluded: SweepResult, *, quiet: bool, as_json: bool) -> int:
    """Print the outcome; the exit code is 2 if a cell failed, as for a run's experiments."""
    from model_profiling.report.text import render_terminal
    from model_profiling.sweep.report import count_text, failures, fastest_table

    record, added, found = outcome.record, concluded.added, concluded.found
    if as_json:
        rows = {each.cell.id: row for row in found.rows for each in row.cells}
        cells = [{**_cell_facts(each), **_results(rows.get(each.cell.id))} for each in record.cells]
        stored = len(added.runs) if added else 0
        facts = {
            "name": record.name,
            "outdir": str(outcome.folder),
            "counts": record.counts(),
            "cells": cells,
        }
        frame.facts(
            {"schema_version": 1, **facts, "store": concluded.store, "stored": stored}
            | page_facts(concluded.report)
        )
    else:
        if found.fastest and not quiet:
            frame.say(render_terminal([fastest_table(found)]) + "\n")
        frame.say(f"Sweep {record.name}: {count_text(record)}")
        if outcome.moved is not None and not quiet:
            frame.say(f"The earlier sweep is kept in {outcome.moved}")
        if added is not None and not quiet:
            frame.say(f"Store: {plural(len(added.runs), 'run')} in {concluded.store}")
        for path in pages(concluded.report):
            frame.say(f"Report: {path}")
    for refused in added.refused if added else ():
        frame.warn(f"{refused.run_dir} is not in the store: {refused.problem}; {refused.fix}")
    lines = list(failures(record))
    for line in lines:
        frame.fail(line)
    return 2 if lines else 0


def _cores(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Parse CPU numbers separated by commas."""
    words = [word.strip() for word in text.split(",")] if text is not None else []
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise click.BadParameter("give CPU numbers, such as 3 or 2,3")
    cores = tuple(map(int, words))
    if len(set(cores)) != len(cores):
        raise click.BadParameter("a CPU is given twice")
    return cores


@frame.command(
    "worker",
    example="""sme2prof worker --scheduler 127.0.0.1:8786 --host --quiet-cores 2,3
    sme2prof worker --scheduler 127.0.0.1:8786 --target android:R5CT1234ABC --no-exports
    sme2prof worker --scheduler tls://lab:8786 --listen 192.0.2.7 --emulated \\
        --tls-ca ca.pem --tls-cert worker.pem --tls-key worker.key""",
)
@click.option("--scheduler", required=True, metavar="HOST:PORT", help="The Dask scheduler.")
@click.option(
    "--target",
    "--device",
    "devices",
    multiple=True,
    metavar="android:SERIAL|ssh:HOST",
    help="Offer this phone or machine (repeatable).",
)
@click.option("--host", is_flag=True, help="Offer this machine itself, as host@MACHINE.")
@click.option("--emulated", is_flag=True, help="Offer emulation.")
@click.option("--no-exports", "exports", flag_value=False, default=True, help="Do not export models here.")
@click.option(
    "--quiet-cores",
    callback=_cores,
    metavar="LIST",
    help="CPUs used only for measuring, such as 2,3; all else runs on the others.",
)
@click.option("--name", show_default="the machine's name and a number", help="Name of this worker.")
@click.option("--machine", show_default="its own name", help="Name of this machine in host@MACHINE.")
@click.option(
    "--listen", metavar="ADDRESS", show_default="loopback", help="Address at which others reach this machine."
)
@click.option("--tls-ca", type=frame.PATH, help="CA certificate for the scheduler, in PEM.")
@click.option("--tls-cert", type=frame.PATH, help="This worker's certificate, in PEM.")
@click.option("--tls-key", type=frame.PATH, help="The key of that certificate, in PEM.")
def worker_command(
    *,
    scheduler: str,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    **asked: Any,  # fields of WorkerOptions, typed by click
) -> int:
    """Work for sweeps until interrupted: measure on the devices named here, and export models.

    Everybody who reaches the scheduler can run code here; docs/how-to/sweeps.md says how to protect it.
    """
    from model_profiling.sweep.worker import (
        WorkerOptions,
        is_loopback,
        parse_scheduler,
        parse_tls,
        run_worker,
    )

    chosen = parse_scheduler(scheduler, parse_tls(tls_ca, tls_cert, tls_key))
    if (listen := asked["listen"]) and chosen.tls is None and not is_loopback(listen):
        frame.warn(
            f"anybody who can reach {listen} can run code here, as you; give --tls-ca, --tls-cert, --tls-key"
        )
    run_worker(WorkerOptions(chosen, **asked), frame.say)
    return 0
