"""Questions in SQL of anybody's: asked in a confined process, within limits, answered in batches.

The kit's own questions go through `Store.rows`, which needs none of this.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from model_profiling.core import files, process
from model_profiling.core.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.core.formatting import did_you_mean, plural
from model_profiling.core.hints import needed
from model_profiling.core.records import csv_line
from model_profiling.store.confined import REFUSED, TYPES, Refusal, Request
from model_profiling.store.connection import table_statements
from model_profiling.store.log import FIX
from model_profiling.store.plain_values import Plain, cell, plain_values
from model_profiling.store.tables import TABLES
from model_profiling.store.views import TABLES_AND_VIEWS

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from model_profiling.store.store import Store


# What DuckDB says of a question that it cannot answer, as one line with what to do.

_LIST = "`sme2prof query --views` lists them"
_ONLY_READS = "a question is one SELECT, FROM, WITH, DESCRIBE, SUMMARIZE, PIVOT or EXPLAIN"
_NO_TABLE = re.compile(r'Table with name "?(.+?)"? does not exist')
_NO_COLUMN = re.compile(
    r'(?:Referenced column|Column) "(.+?)"(?: in \w+ list)? (?:not found|that was)'
    r'|does not have a column named "(.+?)"'
)
_PREFIX = re.compile(r"^[A-Z][A-Za-z ]*?(?:Error|ERROR): ")
_LINE = re.compile(r"^LINE (\d+): ", re.MULTILINE)


def worded(refusal: Refusal, sql: str, memory: int) -> ProfilingError:
    match refusal.kind:
        case "NoQuestionError":
            return InputError(f"this is no question of one statement: {refusal.message}", _ONLY_READS)
        case "DamagedError" | "SetupError":
            return _of_this_machine(refusal)
        case "OutOfMemoryException" | "MemoryError" | "ArrowMemoryError":
            return InputError(
                f"the question needs more than {memory / (1 << 20):.0f} MB of memory",
                "ask for fewer rows or columns, or allow more: sme2prof query --memory MB",
            )
        case "PermissionException":
            return InputError(
                "a question reads the tables of the store, and no other file or setting", f"tables: {_LIST}"
            )
    if not refusal.of_duckdb:
        return _of_this_machine(refusal)
    return InputError(*_unknown_name(refusal.message, sql) or (_said(refusal.message), _cure(refusal.kind)))


def _of_this_machine(refusal: Refusal) -> ProfilingError:
    """What is no fault of the question."""
    match refusal.kind:
        case "DamagedError":
            return FormatError(f"the store's {refusal.message}", FIX)
        case "SetupError":
            return SetupError(*refusal.message.split("; ", 1))
    return RunError(
        f"the answer could not be sent: {refusal.kind}: {one_line(refusal.message)}",
        "write what is asked for as text: column::VARCHAR",
    )


def _unknown_name(message: str, sql: str) -> tuple[str, str] | None:
    """What is wrong and what to do, where the question names something that is not there."""
    if found := _NO_TABLE.search(message):
        hint = did_you_mean(found[1], TABLES_AND_VIEWS)
        return f"there is no table or view '{found[1]}'", _with(hint, _LIST)
    if found := _NO_COLUMN.search(message):
        name = found[1] or found[2]
        return f"there is no column '{name}' here", _with(did_you_mean(name, _columns_near(sql)), _LIST)
    return None


def one_line(text: str) -> str:
    return " ".join(text.split())


def _with(hint: str, more: str) -> str:
    return f"{hint} {more}" if hint else more


def _columns_near(sql: str) -> list[str]:
    """The columns of the tables that the question names; of all where it names none."""
    words = set(re.findall(r"[a-z_0-9]+", sql.lower()))
    named = [found for name, found in TABLES_AND_VIEWS.items() if name in words]
    return sorted({name for found in named or TABLES_AND_VIEWS.values() for name in found.names})


def _said(message: str) -> str:
    """DuckDB's first sentence, and in which line of the question it sees it."""
    first = _PREFIX.sub("", message.strip().split("\n\n")[0].split("\n\t")[0])
    line = _LINE.search(message)
    where = f" in line {line[1]}" if line and int(line[1]) > 1 else ""
    return f"DuckDB cannot answer{where}: {one_line(first).rstrip('.')}"


def _cure(kind: str) -> str:
    if kind == "ParserException":
        return "correct the SQL; an example: FROM latest_latencies ORDER BY median_ms LIMIT 10"
    return f"correct the SQL; tables and columns: {_LIST}"


Params: TypeAlias = Sequence[object] | Mapping[str, object]

_KIT = Path(__file__).resolve().parents[2]
# Python's own modules, the two libraries and the kit are all that it can import, nothing that lies elsewhere
# under their names. It ends without taking its parts down, which takes as long as a small question.
_PYTHON = (sys.executable, "-I", "-S")
_START = (
    "import os, sys; sys.path += sys.argv[1:]; from model_profiling.store.confined import main; "
    "code = main(); sys.stderr.flush(); os._exit(code)"
)
_LONGEST_SQL = 100_000
_LAST_WORDS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a question may take."""

    rows: int | None = None
    """Then no more are asked for; None for all."""
    seconds: float = 60.0
    memory: int = 1 << 30
    """Bytes."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Sequence[Mapping[str, Plain]]):
    """What a question was answered: each row a mapping from column to value, None where nothing is known.

    `answer.to_pandas()` is a DataFrame, `answer.to_arrow()` a pyarrow table, `for row in answer` needs
    neither.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    """As DuckDB calls them."""
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
        """The values as Python's own: moments and what JSON does not know are texts."""
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
        """Pandas' own picture of a table, which escapes what it shows; none without pandas."""
        try:
            frame = self.to_pandas()
        except ProfilingError:
            return None
        html: str = frame.to_html(max_rows=20, max_cols=16, notebook=True)
        return html


def plain_rows(table: Any) -> list[tuple[Plain, ...]]:
    """Of a table or a batch of rows."""
    return list(zip(*(plain_values(column) for column in table.columns), strict=True))


def ask(store: Store, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS) -> Answer:
    """The answer as a whole, in memory."""
    arrow = needed("pyarrow", "store")
    with answering(store, sql, params, limits) as coming:
        batches = list(coming)
    table = arrow.Table.from_batches(batches, coming.schema)
    return Answer(tuple(coming.schema.names), coming.types, coming.more, table)


@dataclass(slots=True)
class Coming:
    """An answer on its way: batches of rows, to be read once."""

    schema: pyarrow.Schema
    types: tuple[str, ...]
    _reader: Any
    _most: int | None
    more: bool = False
    """Whether there were more rows than were asked for; known when all are read."""

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        arrow = needed("pyarrow", "store")
        left = self._most
        for batch in self._reader:
            named = arrow.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            if left is not None and named.num_rows > left:
                self.more = True
                yield named.slice(0, left)
                return
            left = left - named.num_rows if left is not None else None
            yield named


@contextlib.contextmanager
def answering(
    store: Store, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS
) -> Iterator[Coming]:
    """Ask; the block reads what comes. However it ends, nothing of the question runs on."""
    arrow, ipc = needed("pyarrow", "store"), needed("pyarrow.ipc", "store")
    if len(sql) > _LONGEST_SQL:
        raise InputError(f"the question has {len(sql):,} characters", f"ask in at most {_LONGEST_SQL:,}")
    given = dict(params) if isinstance(params, Mapping) else list(params)
    try:
        content = _request(store, sql, given, limits).to_json()
    except TypeError as problem:
        raise InputError(
            f"a parameter cannot be sent: {problem}", "give texts, numbers and lists"
        ) from problem
    with _asked(content, limits) as child:
        assert child.process.stdout is not None
        try:
            reader = ipc.open_stream(child.process.stdout)
            names = _told_apart(reader.schema.names)
            fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
            types = tuple(json.loads(reader.schema.metadata[TYPES.encode()]))
            coming = Coming(arrow.schema(fields), types, reader, limits.rows)
            yield coming
            if coming.more:
                return
        except (arrow.ArrowException, OSError) as problem:
            child.wait()
            if not child.failed:
                raise RunError(f"the answer cannot be read: {problem}", "ask again") from problem
        child.wait()
        if child.timed_out:
            raise InputError(
                f"the question took longer than {limits.seconds:g} s and was ended",
                "ask for less, or allow more: sme2prof query --time-limit SECONDS",
            )
        if child.failed:
            raise _refused(child.process, sql, limits)


def _request(store: Store, sql: str, params: list[object] | dict[str, object], limits: Limits) -> Request:
    """Files are called otherwise than their tables: what counts of them is the store's to say."""
    files = {name: f"files_of_{name}" for name in TABLES}
    paths = store.files()
    sources = {name: f"SELECT * FROM {called}" for name, called in files.items()}  # noqa: S608  our own text
    return Request(
        paths={called: paths[name] for name, called in files.items()},
        columns={
            called: {column.name: column.sql_type for column in TABLES[name].columns}
            for name, called in files.items()
        },
        statements=list(table_statements(sources, list(store.contents().replaced.items()))),
        sql=sql,
        params=params,
        memory=limits.memory,
    )


@dataclass(slots=True)
class _Asked:
    process: process.Child
    timed_out: bool = False

    def wait(self) -> None:
        """Until it has ended by itself, or the limit ended it."""
        self.process.wait()

    @property
    def failed(self) -> bool:
        return self.process.returncode != 0


@contextlib.contextmanager
def _asked(content: bytes, limits: Limits) -> Iterator[_Asked]:
    # Arrow's own pool takes a gigabyte of addresses for a start; times of day are UTC on every machine.
    environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "TZ": "UTC"}
    child = process.start([*_PYTHON, "-c", _START, *_places()], fed=True, env=environment)
    asked = _Asked(child)

    def give_up() -> None:
        asked.timed_out = True
        process.kill(child)

    limit = threading.Timer(limits.seconds, give_up)
    limit.daemon = True
    try:
        limit.start()
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            child.stdin.write(content)
        yield asked
    finally:
        limit.cancel()
        limit.join()
        process.end(child)
        for pipe in (child.stdout, child.stderr):
            assert pipe is not None
            pipe.close()


def _places() -> list[str]:
    """The folders that the two libraries and the kit are in."""
    homes = []
    for name in ("duckdb", "pyarrow"):
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else needed(name, "store").__file__
        homes += [Path(origin).parents[1]] if origin else []
    return [str(place) for place in dict.fromkeys((*homes, _KIT))]


def _refused(child: process.Child, sql: str, limits: Limits) -> ProfilingError:
    assert child.stderr is not None
    text = child.stderr.read(_LAST_WORDS).decode("utf-8", "replace").strip()
    if child.returncode == REFUSED:
        with contextlib.suppress(ValueError, TypeError):
            return worded(Refusal(**json.loads(text.splitlines()[-1])), sql, limits.memory)
    how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
    return RunError(
        f"DuckDB ended in the middle of the question ({how})",
        "ask for less, or allow more memory: sme2prof query --memory MB",
        log_tail=one_line(text),
    )


def _told_apart(names: Sequence[str]) -> list[str]:
    """Column names of which none comes twice, as files and mappings need them."""
    told: list[str] = []
    for name in names:
        number, free = 1, name
        while free in told:
            number += 1
            free = f"{name}_{number}"
        told.append(free)
    return told


# An answer as a file, written batch by batch: it may be larger than the memory.


def write_csv(path: Path, coming: Coming) -> int:
    """The number of rows; nothing known is an empty cell, lists are JSON."""
    rows = 0
    with files.writing_to(path) as stream:
        stream.write(files.encoded(f"{csv_line(coming.schema.names)}\n"))
        for batch in coming:
            lines = (f"{csv_line(map(cell, row))}\n" for row in plain_rows(batch))
            stream.write(files.encoded("".join(lines)))
            rows += batch.num_rows
    return rows


def write_parquet(path: Path, coming: Coming) -> int:
    """The number of rows; types are those of the answer."""
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


def _check_types(arrow: Any, parquet: Any, coming: Coming) -> None:
    """Parquet knows fewer types than DuckDB; said before anything is written."""
    for field, kind in zip(coming.schema, coming.types, strict=True):
        try:
            with parquet.ParquetWriter(io.BytesIO(), arrow.schema([field])):
                pass
        except arrow.ArrowException as problem:
            raise InputError(
                f"a Parquet file cannot hold {field.name}, which is {kind}",
                f'write it as text: "{field.name}"::VARCHAR',
            ) from problem
