"""A store asked with DuckDB: a view for each table over exactly the files that its log names."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from model_profiling.core.errors import FormatError
from model_profiling.core.hints import needed
from model_profiling.store.log import FIX
from model_profiling.store.tables import TABLES, Table
from model_profiling.store.views import VIEWS

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
    try:
        make_tables(
            made,
            {name: _source(made, table, paths.get(name, [])) for name, table in TABLES.items()},
            replaced,
        )
    except engine.Error as problem:
        made.close()
        said = str(problem).splitlines()[0]
        raise FormatError(f"the store's files cannot be read: {said}", FIX) from problem
    except FormatError:
        made.close()
        raise
    return made  # type: ignore[no-any-return]


def rows_of(made: duckdb.DuckDBPyConnection, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
    """What a question of the kit's own answers, a dict for each row."""
    answer = made.execute(sql, list(params))
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def make_tables(
    made: duckdb.DuckDBPyConnection, sources: Mapping[str, str], replaced: Sequence[tuple[str, str]]
) -> None:
    """A view of each table, of what `sources` selects from its files, and the views over them."""
    for statement in table_statements(sources, replaced):
        made.execute(statement)


def table_statements(sources: Mapping[str, str], replaced: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What `make_tables` does, in SQL."""
    yield "CREATE TABLE replaced_runs (run_id VARCHAR, became VARCHAR)"
    if replaced:
        pairs = ", ".join(f"({_text(run_id)}, {_text(became)})" for run_id, became in replaced)
        yield f"INSERT INTO replaced_runs VALUES {pairs}"  # noqa: S608  texts are escaped
    for name, selected in sources.items():
        source = f"({selected})"
        if name == "tags":
            yield f"CREATE VIEW tags AS {_newest_tags(source)}"
            continue
        superseded = " WHERE run_id NOT IN (SELECT run_id FROM replaced_runs)" if replaced else ""
        yield f'CREATE VIEW "{name}" AS SELECT * FROM {source}{superseded}'  # noqa: S608  our own text
    for view in VIEWS.values():
        yield f'CREATE VIEW "{view.name}" AS {view.sql}'


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


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def _escaped(path: str) -> str:
    """In a text of SQL; and as DuckDB would take them for patterns, letters that are some stand alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path).replace("'", "''")


# Moments as tables hold them: microseconds since 1970, in UTC.

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def now() -> int:
    return time.time_ns() // 1000


def moment_of(text: str) -> int | None:
    """What a file of a run calls a moment; None where it is none."""
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"):
        try:
            told = datetime.strptime(text, form)
        except ValueError:
            continue
        return (told - _EPOCH) // _MICROSECOND if told.year >= 1970 else None
    return None


def as_moment(told: datetime) -> int:
    """Of what a store answers: a date and time without a zone, which is UTC."""
    return (told.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


def month_of(moment: int) -> str:
    """2026-11, what files are kept by."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m")
