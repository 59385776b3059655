"""DuckDB connections to a store, with a view of each table over exactly the files that its index names."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from model_profiling.core.errors import FormatError
from model_profiling.core.hints import needed
from model_profiling.store.data_files import FIX
from model_profiling.store.tables import TABLES, VIEWS, Table

if TYPE_CHECKING:
    import duckdb


_MEMORY = 2 << 30
"""Bytes that a query may take; DuckDB itself refuses more."""


def connect(paths: Mapping[str, Sequence[str]], *, memory: int = _MEMORY) -> duckdb.DuckDBPyConnection:
    engine = needed("duckdb", "store")
    made = in_memory(memory)
    try:
        make_views(made, {name: _source(made, table, paths[name]) for name, table in TABLES.items()})
    except (FormatError, engine.Error) as problem:
        made.close()
        if isinstance(problem, FormatError):
            raise
        listed = [_text(without_patterns(path)) for found in paths.values() for path in found]
        said = str(problem).splitlines()[0]
        generic = FormatError(f"the store's files cannot be read: {said}", FIX)
        raise _first_damaged(listed) or generic from problem
    return made


def damage(made: duckdb.DuckDBPyConnection) -> FormatError | None:
    """The error about the first file of the views that DuckDB cannot read; None if it reads all of them."""
    views = made.cursor().execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
    return _first_damaged(
        [path for (sql,) in views for path in re.findall(r"'(?:[^']|''){1,9999}\.parquet'", sql)]
    )


def _first_damaged(listed: Sequence[str]) -> FormatError | None:
    """The same for paths as SQL writes them."""
    if not listed:
        return None
    engine = needed("duckdb", "store")
    with in_memory(_MEMORY) as other:
        for path in dict.fromkeys(listed):
            try:
                other.execute(f"SELECT bit_xor(hash(t)) FROM read_parquet({path}) t").fetchall()  # noqa: S608
            except (engine.Error, UnicodeDecodeError):
                return FormatError(f"{path[1:-1]} is damaged", FIX)
    return None


def in_memory(memory: int) -> duckdb.DuckDBPyConnection:
    """Connect to an empty DuckDB that loads no extension and writes nothing to disk."""
    config = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": f"{memory}B",
        "temp_directory": "",
    }
    made: duckdb.DuckDBPyConnection = needed("duckdb", "store").connect(":memory:", config=config)
    return made


def lock_down(made: duckdb.DuckDBPyConnection, paths: Sequence[str] = ()) -> None:
    """From here on SQL can open only `paths` and change no setting."""
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET enable_progress_bar = false")  # it would print to standard output
    allowed = {form for path in paths for form in (path, without_patterns(path))}
    made.execute(f"SET allowed_paths = [{', '.join(map(_text, allowed))}]")
    # DuckDB would look up an unknown name among the variables of this Python program.
    made.execute("SET python_enable_replacements = false")
    made.execute("SET enable_external_access = false")
    made.execute("SET lock_configuration = true")


def rows_of(made: duckdb.DuckDBPyConnection, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
    engine = needed("duckdb", "store")
    try:
        answer = made.execute(sql, list(params))
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    except (engine.Error, UnicodeDecodeError) as problem:
        raise damage(made) or problem from problem


def make_views(made: duckdb.DuckDBPyConnection, sources: Mapping[str, str]) -> None:
    """Create a view of each table from its SELECT in `sources`, and the views over them."""
    for name, selected in sources.items():
        made.execute(f'CREATE VIEW "{name}" AS {_newest_tags(selected) if name == "tags" else selected}')
    for view in VIEWS.values():
        made.execute(f'CREATE VIEW "{view.name}" AS {view.sql}')


def _source(made: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[str]) -> str:
    """A SELECT of the columns of `table`, in order; null where files are older than a column."""
    if not paths:
        nothing = ", ".join(f'NULL::{column.sql_type} AS "{column.name}"' for column in table.columns)
        return f"SELECT {nothing} WHERE false"
    listed = ", ".join(_text(without_patterns(path)) for path in paths)
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
    """Tags in force: the newest row of each run and tag, unless it removes the tag."""
    return f"""
        SELECT run_id, ltrim(tag, '-') AS tag, tagged_at, note FROM (
            FROM ({source})
            QUALIFY row_number() OVER (PARTITION BY run_id, ltrim(tag, '-') ORDER BY tagged_at DESC) = 1
        ) WHERE NOT starts_with(tag, '-')"""  # noqa: S608  the source is the kit's own text


def without_patterns(path: str) -> str:
    """Put each character that DuckDB would take for a pattern in brackets."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


# Times as tables hold them: microseconds since 1970, in UTC.

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def now() -> int:
    return time.time_ns() // 1000


def moment_of(text: str) -> int | None:
    """Parse a time from a file of a run; None if it is not one."""
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"):
        try:
            told = datetime.strptime(text, form)
        except ValueError:
            continue
        return (told - _EPOCH) // _MICROSECOND if told.year >= 1970 else None
    return None


def as_moment(told: datetime) -> int:
    """Convert a time from a store, which has no zone and is UTC."""
    return (told.replace(tzinfo=timezone.utc) - _EPOCH) // _MICROSECOND


def month_of(moment: int) -> str:
    """Return the month, such as 2026-11, by which files are grouped."""
    return (_EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m")
