"""`sme2prof store add|list|tag|remove`, `query` and `history`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import MISSING, did_you_mean, plural

if TYPE_CHECKING:
    from model_profiling.store.store import Answer

_MOST_SHOWN = 10_000
_PRINTED, _IN_JSON = 100, 100_000
"""How many rows of an answer."""
_WIDEST = 100


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
    from model_profiling.core.stdio import shown_progress
    from model_profiling.store.labels import Labels
    from model_profiling.store.store import Store

    with shown_progress():
        opened = Store.open(store, make=True)
        added = opened.add(run_dirs, Labels(**labels))
    if as_json:
        frame.facts({"schema_version": 1, "store": opened.address, **asdict(added)})
        return 1 if added.refused else 0
    for run in added.runs:
        frame.say(f"{run.run_id[:12]}  {run.outcome}: {run.run_dir}")
    for refused in added.refused:
        frame.fail(f"{refused.run_dir} is not added: {refused.problem}; {refused.fix}")
    already = len(added.runs) - len(added.new)
    frame.say(f"{opened.address}: {plural(len(added.new), 'run')} added, {already} known")
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
@click.option("--last", type=click.IntRange(1, _MOST_SHOWN), default=50, show_default=True, help="How many.")
def list_runs(*, store: str | None, last: int, as_json: bool, **filters: Any) -> None:
    """List the runs of a store, the newest first."""
    from model_profiling.runs.times import NOT_ARM, marked
    from model_profiling.store.store import Store, list_runs

    opened = Store.open(store)
    runs, matching = list_runs(opened, **filters, last=last)
    if as_json:
        frame.facts({"schema_version": 1, "store": opened.address, "matching": matching, "runs": runs})
        return
    if not runs:
        frame.say(f"{opened.address} {'holds no such run' if any(filters.values()) else 'is empty'}")
        return
    rows = [
        (
            run["run_id"][:12],
            f"{run['measured_at']:%Y-%m-%d %H:%M}" if run["measured_at"] else "",
            run["name"],
            run["device"],
            "" if run["median_ms"] is None else marked(f"{run['median_ms']:.3f}", run["is_arm"]),
            run["commit_hash"][:10],
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


@frame.command(
    "history",
    example="""sme2prof history toy_cnn
    sme2prof history toy_cnn --dtype fp16 --threads 1 --since 2026-09-01
    sme2prof history toy_cnn --device "Pixel 10" --out toy_history.html""",
    facts=True,
)
@click.argument("model")
@click.option("--dtype", help="Only this number format.")
@click.option("--backend", help="Only this backend.")
@click.option("--device", metavar="NAME", help="Only this device: its name in the store, or a part of it.")
@click.option("--threads", type=click.IntRange(1, 512), help="Only this number of threads.")
@click.option("--experiment", help="Only this experiment.")
@click.option(
    "--since",
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")),
    metavar="DATE",
    help="Only runs measured since this day or time (UTC), such as 2026-09-01 or 2026-09-01T08:30.",
)
@frame.store_option
@click.option("--out", type=frame.FILE, help="Also write a page: .html, or .md with an .html beside it.")
def history_command(*, store: str | None, out: Path | None, as_json: bool, **question: Any) -> None:
    """Show a model's latency over all runs of a store, and when it changed.

    Each combination of device, number format, experiment and thread count is a series. The rate of false
    alarms is known and printed (docs/explanation/history.md). For a list of runs, use `sme2prof view STORE`.
    """
    from model_profiling.report.document import render_terminal
    from model_profiling.report.history import history_document, history_facts, history_title
    from model_profiling.store.store import Store
    from model_profiling.workflow.stored_runs import load_history

    history = load_history(Store.open(store), **question)
    page = [] if as_json and out is None else history_document(history)
    if out is not None:
        from model_profiling.workflow.report import write_page

        write_page(page, out, history_title(history), pictures=True)
    if as_json:
        frame.facts(history_facts(history))
        return
    frame.say(render_terminal(page).strip())
    if out is not None:
        frame.say_wrote(out)


@frame.command(
    "query",
    example="""sme2prof query "SELECT * FROM latest_latencies ORDER BY model, median_ms"
    sme2prof query "SELECT model, dtype, ratio, low, high FROM sme2_gains" --csv gains.csv
    sme2prof query --views operator_times""",
    facts=True,
)
@click.argument("sql", required=False, metavar="[SQL]")
@frame.store_option
@click.option("--views", is_flag=True, help="List the tables and views; with a name, its columns.")
@click.option(
    "--rows",
    type=click.IntRange(1, 10**9),
    show_default=f"{_PRINTED} printed, {_IN_JSON} with --json, all in a file",
    help="The most rows.",
)
@click.option("--csv", "csv_file", type=frame.FILE, help="Write all rows to this CSV file.")
@click.option(
    "--time-limit",
    "seconds",
    type=frame.FloatRange(0, 86_400, min_open=True),
    default=60.0,
    show_default="60",
    metavar="SECONDS",
    help="Stop a query that takes longer.",
)
def query_command(
    *,
    sql: str | None,
    store: str | None,
    views: bool,
    rows: int | None,
    csv_file: Path | None,
    seconds: float,
    as_json: bool,
) -> None:
    """Query a store of runs: one SELECT in the SQL of its database.

    A query only reads the store. --views lists the tables and views, such as latencies and operator_times.
    Without SQL, `sme2prof store list` lists the runs and `sme2prof history` shows one model.
    """
    from model_profiling.store.database import Limits
    from model_profiling.store.store import Store

    if as_json and csv_file is not None:
        raise click.UsageError("give only one of --csv and --json")
    most = rows or (None if csv_file else _IN_JSON if as_json else _PRINTED)
    if views:
        answer = _views(sql)
    elif sql is None:
        raise click.UsageError("Missing argument 'SQL'; --views lists the tables and views")
    else:
        answer = Store.open(store).query(sql, Limits(rows=most, seconds=seconds))
    if csv_file is not None:
        _write_csv(csv_file, answer)
    elif as_json:
        if answer.more:
            frame.warn(f"only the first {plural(len(answer), 'row')}: --rows N gives more")
        facts = {"columns": answer.columns, "rows": list(answer), "more": answer.more}
        frame.facts({"schema_version": 1, **facts})
    else:
        _print(answer)


def _write_csv(path: Path, answer: Answer) -> None:
    """Nulls are empty cells, lists are JSON."""
    from model_profiling.core import files
    from model_profiling.core.records import csv_line

    lines = [answer.columns, *(tuple(map(_cell, row)) for row in answer.rows)]
    files.write_text(path, "".join(f"{csv_line(line)}\n" for line in lines))
    frame.say_wrote(path, f" ({plural(len(answer), 'row')}{', of more' if answer.more else ''})")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _print(answer: Answer) -> None:
    from model_profiling.report.document import make_table, render_terminal

    numbers = [
        place
        for place in range(len(answer.columns))
        if any(isinstance(row[place], int | float) for row in answer.rows)
    ]
    rows = [[_printed(value) for value in row] for row in answer.rows]
    frame.say(render_terminal([make_table(answer.columns, rows, numbers)]))
    cut = any(cell.endswith("...") for row in rows for cell in row)
    whole = "; --csv FILE writes whole cells" if cut else ""
    if answer.more:
        frame.say(f"the first {plural(len(rows), 'row')}; --rows N shows more, --csv FILE writes all{whole}")
    else:
        frame.say(f"{plural(len(rows), 'row')}{whole}")


def _printed(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(_cell(value))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _views(name: str | None) -> Answer:
    """The tables and views, or the columns of one."""
    from model_profiling.store.store import Answer
    from model_profiling.store.tables import TABLES_AND_VIEWS, sql_type

    if name is None:
        tables = ((name, table.meaning, ", ".join(table.names)) for name, table in TABLES_AND_VIEWS.items())
        return Answer(("name", "meaning", "columns"), tuple(tables), more=False)
    if name not in TABLES_AND_VIEWS:
        hint = did_you_mean(name, TABLES_AND_VIEWS) or f"there are {', '.join(TABLES_AND_VIEWS)}"
        raise InputError(f"there is no table or view '{name}'", hint)
    columns = (
        (column.name, str(sql_type(column)), column.meaning) for column in TABLES_AND_VIEWS[name].columns
    )
    return Answer(("column", "type", "meaning"), tuple(columns), more=False)
