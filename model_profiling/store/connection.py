"""A store asked with DuckDB: a view for each table over exactly the files that its log names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_profiling.errors import FormatError
from model_profiling.extras import needed
from model_profiling.store.log import FIX
from model_profiling.store.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

_MEMORY = "2GB"
"""What a question may take; more is refused by DuckDB, with its own words."""


def connect(
    paths: dict[str, list[str]], replaced: Sequence[tuple[str, str]], *, memory: str = _MEMORY
) -> duckdb.DuckDBPyConnection:
    """A connection with a view of each table; `paths` are its files, `replaced` the runs that were continued
    and what each has become."""
    engine = needed("duckdb", "store")
    made = engine.connect(":memory:", config={"memory_limit": memory, "temp_directory": ""})
    made.execute("CREATE TABLE replaced_runs (run_id VARCHAR, became VARCHAR)")
    if replaced:
        made.executemany("INSERT INTO replaced_runs VALUES (?, ?)", [list(one) for one in replaced])
    try:
        for table in TABLES.values():
            _make_view(made, table, paths.get(table.name, []), bool(replaced))
    except engine.Error as problem:
        made.close()
        said = str(problem).splitlines()[0]
        raise FormatError(f"the store's files cannot be read: {said}", FIX) from problem
    except FormatError:
        made.close()
        raise
    return made  # type: ignore[no-any-return]


def _make_view(made: duckdb.DuckDBPyConnection, table: Table, paths: list[str], replaced: bool) -> None:
    source = f"({_source(made, table, paths)})"
    if table.name == "tags":
        made.execute(f"CREATE VIEW tags AS {_newest_tags(source)}")
        return
    superseded = " WHERE run_id NOT IN (SELECT run_id FROM replaced_runs)" if replaced else ""
    made.execute(f'CREATE VIEW "{table.name}" AS SELECT * FROM {source}{superseded}')  # noqa: S608  our own text


def _source(made: duckdb.DuckDBPyConnection, table: Table, paths: list[str]) -> str:
    """The columns of `table`, in order; null where files are older than a column."""
    if not paths:
        nothing = ", ".join(f'NULL::{column.sql_type} AS "{column.name}"' for column in table.columns)
        return f"SELECT {nothing} WHERE false"
    listed = ", ".join(f"'{_escaped(path)}'" for path in paths)
    read = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    described = made.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()  # noqa: S608  names are escaped
    there = {name: kind for name, kind, *_ in described}
    chosen = []
    for column in table.columns:
        kind = there.get(column.name)
        if kind is not None and kind != column.sql_type:
            raise FormatError(f"{column.name} of {table.name} is {kind}, not {column.sql_type}", FIX)
        chosen.append(f'"{column.name}"' if kind else f'NULL::{column.sql_type} AS "{column.name}"')
    return f"SELECT {', '.join(chosen)} FROM {read}"  # noqa: S608  names are escaped


def _newest_tags(source: str) -> str:
    """The tags that hold: of each run and tag the newest row, unless that takes it away."""
    return f"""
        SELECT run_id, tag, tagged_at, note FROM (
            SELECT coalesce(became, told.run_id) AS run_id, ltrim(tag, '-') AS tag, tagged_at, note,
                   starts_with(tag, '-') AS removed
            FROM {source} told LEFT JOIN replaced_runs USING (run_id)
            QUALIFY row_number() OVER (
                PARTITION BY coalesce(became, told.run_id), ltrim(tag, '-') ORDER BY tagged_at DESC
            ) = 1
        ) WHERE NOT removed"""  # noqa: S608  the source is the kit's own text


def _escaped(path: str) -> str:
    """In a text of SQL; and as DuckDB would take them for patterns, letters that are some stand alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path).replace("'", "''")
