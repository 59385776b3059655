"""`sme2prof query`: queries of a store of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import MISSING, did_you_mean, plural

if TYPE_CHECKING:
    from model_profiling.store.store import Answer


_PRINTED, _IN_JSON = 100, 100_000
_WIDEST = 100


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

    A query only reads the store. --views lists the tables and views, such as latencies, operator_times and
    kernels_seen. Without SQL, `sme2prof store list` lists the runs and `sme2prof history` shows one model.
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
    files.write_out(path, "".join(f"{csv_line(line)}\n" for line in lines))
    frame.say_wrote(path, f" ({plural(len(answer), 'row')}{', of more' if answer.more else ''})")


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _print(answer: Answer) -> None:
    from model_profiling.report.document import make_table
    from model_profiling.report.text import render_terminal

    numbers = [
        place
        for place in range(len(answer.columns))
        if any(isinstance(row[place], int | float) for row in answer.rows)
    ]
    shown = [[_shown(value) for value in row] for row in answer.rows]
    frame.say(render_terminal([make_table(answer.columns, shown, numbers)]))
    cut = any(cell.endswith("...") for row in shown for cell in row)
    whole = "; --csv FILE writes whole cells" if cut else ""
    if answer.more:
        frame.say(f"the first {plural(len(shown), 'row')}; --rows N shows more, --csv FILE writes all{whole}")
    else:
        frame.say(f"{plural(len(shown), 'row')}{whole}")


def _shown(value: Any) -> str:
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
