"""SQL queries on a store, with limits; answers come in batches of rows.

A query by the store's user runs in this process, where DuckDB's own settings keep it from other files; a
query that somebody else wrote runs in a process that can open nothing (`confined.py`).
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, RunError
from model_profiling.core.formatting import did_you_mean, plural
from model_profiling.core.hints import needed
from model_profiling.core.records import csv_line
from model_profiling.store.connection import connect, damage, lock_down
from model_profiling.store.tables import TABLES_AND_VIEWS

if TYPE_CHECKING:
    import duckdb
    import pandas
    import pyarrow

    from model_profiling.store.store import Store

Params: TypeAlias = Sequence[object] | Mapping[str, object]
Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"

_LONGEST_SQL = 100_000
_ROWS = 2048
"""Rows per batch."""
_READS = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""Types of statements that only read; PIVOT counts as MULTI."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a query may use."""

    rows: int | None = None
    """The most rows to return; None for all."""
    seconds: float = 60.0
    memory: int = 1 << 30
    """Bytes."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Sequence[Mapping[str, Plain]]):
    """The answer to a query: each row is a mapping from column to value, with None for nulls.

    `answer.to_pandas()` is a DataFrame, `answer.to_arrow()` a pyarrow table; iterating needs neither.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's names of the types."""
    more: bool
    """Whether there were more rows than were asked for."""
    table: pyarrow.Table

    def to_arrow(self) -> pyarrow.Table:
        return self.table

    def to_pandas(self) -> pandas.DataFrame:
        """Needs the extra `pandas`."""
        needed("pandas", "pandas")
        frame: pandas.DataFrame = self.table.to_pandas()
        return frame

    @property
    def rows(self) -> list[tuple[Plain, ...]]:
        """The values as Python's own; dates, times and types that JSON lacks become text."""
        return plain_rows(self.table)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._row(values) for values in self.rows[place]]
        return self._row(plain_rows(self.table.slice(range(len(self))[place], 1))[0])

    def __iter__(self) -> Iterator[Mapping[str, Plain]]:
        return map(self._row, self.rows)

    def _row(self, values: tuple[Plain, ...]) -> Mapping[str, Plain]:
        return dict(zip(self.columns, values, strict=True))

    def __repr__(self) -> str:
        return f"<Answer: {plural(len(self), 'row')} of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str | None:
        """The HTML table of pandas, which escapes its content; None without pandas."""
        try:
            frame = self.to_pandas()
        except ProfilingError:
            return None
        html: str = frame.to_html(max_rows=20, max_cols=16, notebook=True)
        return html


@dataclass(slots=True)
class AnswerStream:
    """An answer as it arrives: batches of rows, to be read once."""

    schema: pyarrow.Schema
    types: tuple[str, ...]
    _batches: Iterator[pyarrow.RecordBatch]
    _most: int | None
    more: bool = False
    """Whether there were more rows than were asked for; known once all are read."""

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        arrow = needed("pyarrow", "store")
        left = self._most
        for batch in self._batches:
            named = arrow.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            if left is not None and named.num_rows > left:
                self.more = True
                yield named.slice(0, left)
                return
            left = left - named.num_rows if left is not None else None
            yield named

    def whole(self) -> Answer:
        table = needed("pyarrow", "store").Table.from_batches(list(self), self.schema)
        return Answer(tuple(self.schema.names), self.types, self.more, table)


@contextlib.contextmanager
def open_answer(
    store: Store, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS
) -> Iterator[AnswerStream]:
    """Run a query and yield its answer. However the block ends, the query is stopped."""
    paths = store.files()
    with connect(paths, memory=limits.memory) as made:
        lock_down(made, [path for found in paths.values() for path in found])
        check_question(sql)
        with asking(made, sql, params, limits) as coming:
            yield coming


def check_question(sql: str) -> None:
    """Refuse anything but one statement that only reads."""
    engine = needed("duckdb", "store")
    if len(sql) > _LONGEST_SQL:
        raise InputError(f"the query has {len(sql):,} characters", f"use at most {_LONGEST_SQL:,}")
    try:
        kinds = [found.type.name for found in engine.extract_statements(sql)]
    except engine.Error as problem:
        raise worded(problem, sql) from problem
    if len(kinds) == 1 and kinds[0] in _READS:
        return
    wrong = f"{kinds[0].replace('_', ' ')} is not read-only" if len(kinds) == 1 else "this is empty"
    told = f"this has {len(kinds)} statements" if len(kinds) > 1 else wrong
    raise InputError(f"only a single read-only statement is allowed: {told}", _ONLY_READS)


@contextlib.contextmanager
def asking(
    made: duckdb.DuckDBPyConnection, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS
) -> Iterator[AnswerStream]:
    """Like `open_answer`, on a connection that is locked down. DuckDB works in a thread, so that neither the
    time limit nor Ctrl-C waits for it."""
    engine, arrow = needed("duckdb", "store"), needed("pyarrow", "store")
    until = time.monotonic() + limits.seconds
    with ThreadPoolExecutor(1) as pool:

        def done(work: Callable[[], Any]) -> Any:
            return pool.submit(work).result(until - time.monotonic())

        try:
            asked = done(lambda: made.sql(sql, params=params or None))
            if asked is None:
                raise InputError(
                    "only a single read-only statement is allowed: this one returns no rows", _ONLY_READS
                )
            reader = done(lambda: asked.to_arrow_reader(_ROWS))
            names = _told_apart(reader.schema.names)
            fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
            types = tuple(str(kind) for kind in asked.types)
            batches = iter(lambda: done(lambda: next(reader, None)), None)
            yield AnswerStream(arrow.schema(fields), types, batches, limits.rows)
        except LateError as problem:
            raise InputError(
                f"the query took longer than {limits.seconds:g} s and was stopped",
                "query fewer rows, or raise the limit: sme2prof query --time-limit SECONDS",
            ) from problem
        except (engine.Error, arrow.ArrowException, OSError, MemoryError) as problem:
            kind = _KIND.search(str(problem))
            of_files = kind is None or kind[1] in ("IO", "Invalid Input")
            found = damage(made) if of_files else None
            raise found or worded(problem, sql, limits.memory) from problem
        finally:
            made.interrupt()


def _told_apart(names: Sequence[str]) -> list[str]:
    """Make column names unique, as files and mappings need them."""
    told: list[str] = []
    for name in names:
        number, free = 1, name
        while free in told:
            number += 1
            free = f"{name}_{number}"
        told.append(free)
    return told


# DuckDB's errors as one line with a fix.

_LIST = "`sme2prof query --views` lists them"
_ONLY_READS = "write one SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT or EXPLAIN"
_NO_TABLE = re.compile(r'Table with name "?(.+?)"? does not exist')
_NO_COLUMN = re.compile(
    r'(?:Referenced column|Column) "(.+?)"(?: in \w+ list)? (?:not found|that was)'
    r'|does not have a column named "(.+?)"'
)
_KIND = re.compile(r"^([A-Z][A-Za-z ]*?) (?:Error|ERROR): ")
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)


def worded(problem: Exception, sql: str, memory: int = DEFAULT_LIMITS.memory) -> ProfilingError:
    """Turn an error of DuckDB, or of Arrow (which passes DuckDB's words on), into one of the kit's."""
    message = str(problem).strip()
    found = _KIND.search(message)
    kind = "Out of Memory" if isinstance(problem, MemoryError) else found[1] if found else ""
    match kind:
        case "Out of Memory":
            return InputError(
                f"the query needs more than {memory / (1 << 20):.0f} MB of memory",
                "query fewer rows or columns, or raise the limit: sme2prof query --memory MB",
            )
        case "Permission":
            return InputError(
                "a query may read only the tables of the store, not other files or settings",
                f"tables: {_LIST}",
            )
        case "":
            return RunError(
                f"the answer could not be sent: {type(problem).__name__}: {_one_line(message)}",
                "convert the column to text: column::VARCHAR",
            )
    example = "; an example: FROM latest_latencies ORDER BY median_ms LIMIT 10"
    cure = f"correct the SQL{example if kind == 'Parser' else f'; tables and columns: {_LIST}'}"
    return InputError(*_unknown_name(message, sql) or (_said(message), cure))


def _unknown_name(message: str, sql: str) -> tuple[str, str] | None:
    """The problem and its fix, if the query names a table or column that does not exist."""
    if found := _NO_TABLE.search(message):
        hint = did_you_mean(found[1], TABLES_AND_VIEWS)
        return f"there is no table or view '{found[1]}'", _with(hint, _LIST)
    if found := _NO_COLUMN.search(message):
        name = found[1] or found[2]
        return f"there is no column '{name}' here", _with(did_you_mean(name, _columns_near(sql)), _LIST)
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _with(hint: str, more: str) -> str:
    return f"{hint} {more}" if hint else more


def _columns_near(sql: str) -> list[str]:
    """The columns of the tables that the query names, or of all if it names none."""
    words = set(re.findall(r"[a-z_0-9]+", sql.lower()))
    named = [found for name, found in TABLES_AND_VIEWS.items() if name in words]
    return sorted({name for found in named or TABLES_AND_VIEWS.values() for name in found.names})


def _said(message: str) -> str:
    first = _KIND.sub("", message.strip().split("\n\n")[0].split("\n\t")[0])
    line = _LINE.search(message)
    where = f" in line {line[1]}" if line and int(line[1]) > 1 else ""
    return f"DuckDB cannot run the query{where}: {_one_line(first).rstrip('.')}"


# Values of an answer for JSON, CSV and terminals; whatever DuckDB may return has a form here.


def plain_rows(table: Any) -> list[tuple[Plain, ...]]:
    return list(zip(*(map(_plain, _values(column)) for column in table.columns), strict=True))


def _values(column: Any) -> list[Any]:
    """The values of an Arrow column. Times are in UTC; values that Python cannot represent become text."""
    arrow = needed("pyarrow", "store")
    if arrow.types.is_timestamp(column.type):
        # Drop the time zone, because some machines have no table of zones; the value is UTC anyway.
        column = column.cast(arrow.timestamp("us"), safe=False)
    with contextlib.suppress(ValueError, OverflowError, arrow.ArrowException):
        return list(column.to_pylist())
    with contextlib.suppress(arrow.ArrowException):
        return list(column.cast(arrow.string()).to_pylist())
    return [str(value) for value in column]


def _plain(value: Any) -> Plain:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {str(key): _plain(inside) for key, inside in value.items()}
        case list():
            return [_plain(inside) for inside in value]
        case tuple() if type(value) is tuple:  # an entry of a MAP
            return [_plain(inside) for inside in value]
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
    return _text(value)


def _text(value: Any) -> str:
    match value:
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case (months, days, nanoseconds):  # Arrow's record of an INTERVAL
            return f"{months} months {days} days {nanoseconds / 1e9:g} seconds"
    return str(value)


def json_value(value: Plain) -> Plain:
    """Replace NaN and infinities, which JSON lacks, by null."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [json_value(inside) for inside in value]
        case dict():
            return {key: json_value(inside) for key, inside in value.items()}
    return value


def cell(value: Plain) -> str | int | float | None:
    """A value for a table: lists and structures as JSON, booleans as words."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(json_value(value), ensure_ascii=False)
    return value


# Answers as files, written batch by batch: they may be larger than memory.


def write_csv(path: Path, coming: AnswerStream) -> int:
    """Write an answer and return the number of rows; nulls are empty cells, lists are JSON."""
    rows = 0
    with files.writing_to(path) as stream:
        stream.write(files.encoded(f"{csv_line(coming.schema.names)}\n"))
        for batch in coming:
            lines = (f"{csv_line(map(cell, row))}\n" for row in plain_rows(batch))
            stream.write(files.encoded("".join(lines)))
            rows += batch.num_rows
    return rows


def write_parquet(path: Path, coming: AnswerStream) -> int:
    """Write an answer with its own types and return the number of rows."""
    arrow, parquet = needed("pyarrow", "store"), needed("pyarrow.parquet", "store")
    _check_types(arrow, parquet, coming)
    rows = 0
    with (
        files.writing_to(path) as stream,
        parquet.ParquetWriter(stream, coming.schema, compression="zstd") as writer,
    ):
        for batch in coming:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _check_types(arrow: Any, parquet: Any, coming: AnswerStream) -> None:
    """Refuse types that Parquet lacks, before anything is written."""
    for field, kind in zip(coming.schema, coming.types, strict=True):
        try:
            with parquet.ParquetWriter(io.BytesIO(), arrow.schema([field])):
                pass
        except arrow.ArrowException as problem:
            raise InputError(
                f"{field.name} has the type {kind}, which a Parquet file cannot store",
                f'convert it to text: "{field.name}"::VARCHAR',
            ) from problem
