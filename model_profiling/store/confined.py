"""Answers one question in a process that can open nothing, whatever the question says.

DuckDB alone does not confine SQL: a COPY inside of a WITH counts as a SELECT, and may write whatever the
engine may read; what its functions allocate is not all counted. So the files of the store are mapped into
memory, and then the system is told that this process opens no file and no socket, writes no file and takes no
more memory; DuckDB never learns a path. Started by `query.py`: a `Request` comes in as JSON, the answer goes
out as a stream of Arrow batches, a refusal as one line of JSON on standard error. It loads little of the kit:
whoever asks waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from model_profiling.core.hints import needed
from model_profiling.store.tables import OnlyArrow

if TYPE_CHECKING:
    import duckdb

REFUSED = 3
"""The exit code of a process that said why it did not answer."""
TYPES = "duckdb_types"
"""In the answer's metadata: what DuckDB calls the types of its columns."""
_ROWS = 2048
_READS = frozenset({"SELECT", "EXPLAIN", "MULTI"})
"""Kinds of statements that ask; PIVOT is one of several parts."""
_STATUS = Path("/proc/self/status")
_BESIDES = 256 << 20
"""Bytes beyond what DuckDB counts: Arrow's, and what runs in other threads."""
_LONGEST = 20_000
"""Of a message: more than a pipe holds would wait for a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    paths: Mapping[str, Sequence[str]]
    """The Parquet files of each table, which is called so in `statements`."""
    columns: Mapping[str, Mapping[str, str]]
    """Of each table: the names and the SQL types that its files are to have; younger ones they may lack."""
    statements: Sequence[str]
    """What is done before the question is asked, in SQL of the kit's own."""
    sql: str
    params: Sequence[object] | Mapping[str, object]
    memory: int
    """Bytes."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer: the class of what was raised, and what it said."""

    kind: str
    message: str
    module: str = ""

    @property
    def of_duckdb(self) -> bool:
        return self.module.strip("_").startswith("duckdb")

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class NoQuestionError(Exception):
    """The text is not one statement that asks."""


class DamagedError(Exception):
    """The files of the store are not what they should be."""


def main() -> int:
    sys.meta_path.insert(0, OnlyArrow())
    request = Request(**json.loads(sys.stdin.buffer.read()))
    try:
        with _alone_on_stdout() as stream:
            _answer(request, stream)
    except BrokenPipeError:
        return 0
    except Exception as problem:  # noqa: BLE001  whatever it is, the process that asked words it
        found = Refusal(type(problem).__name__, str(problem)[:_LONGEST], type(problem).__module__)
        sys.stderr.write(found.to_json())
        return REFUSED
    return 0


def _alone_on_stdout() -> IO[bytes]:
    """Standard output for the answer alone: DuckDB draws the progress of a long question there."""
    ours = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return os.fdopen(ours, "wb")


def _answer(request: Request, stream: IO[bytes]) -> None:
    engine, ipc = needed("duckdb", "store"), needed("pyarrow.ipc", "store")
    with _opened(engine, request) as made:
        _check_question(engine, request.sql)
        _open_nothing_more(request.memory)
        asked = made.sql(request.sql, params=request.params) if request.params else made.sql(request.sql)
        if asked is None:
            raise NoQuestionError("it answers nothing")
        types = json.dumps([str(kind) for kind in asked.types])
        # Its name until DuckDB 1.4.
        batches = getattr(asked, "to_arrow_reader", None) or asked.fetch_arrow_reader
        with contextlib.closing(batches(_ROWS)) as reader:
            schema = reader.schema.with_metadata({TYPES: types})
            with ipc.new_stream(stream, schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    stream.flush()


def _opened(engine: Any, request: Request) -> duckdb.DuckDBPyConnection:
    made: duckdb.DuckDBPyConnection = engine.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "temp_directory": "",
            "memory_limit": f"{request.memory}B",
        },
    )
    for name, columns in request.columns.items():
        made.register(name, _mapped(name, columns, request.paths.get(name, ())))
    for statement in request.statements:
        made.execute(statement)
    # A name that nobody knows would be looked up among the variables of this very program.
    made.execute("SET python_enable_replacements = false")
    made.execute("SET enable_external_access = false")
    made.execute("SET lock_configuration = true")
    return made


def _mapped(name: str, columns: Mapping[str, str], paths: Sequence[str]) -> Any:
    """What the files of a table hold, without any file open."""
    arrow, dataset = needed("pyarrow", "store"), needed("pyarrow.dataset", "store")
    schema, form = _schema(arrow, columns), dataset.ParquetFileFormat()
    if not paths:
        return schema.empty_table()
    try:
        pieces = [form.make_fragment(arrow.memory_map(path).read_buffer()) for path in paths]
        for piece, path in zip(pieces, paths, strict=True):
            _check_columns(schema, piece.physical_schema, path)
    except (arrow.ArrowException, OSError) as problem:
        raise DamagedError(f"files of {name} cannot be read: {problem}") from problem
    return dataset.FileSystemDataset(pieces, schema, form)


def _schema(arrow: Any, columns: Mapping[str, str]) -> Any:
    types = {
        "VARCHAR": arrow.string(),
        "BIGINT": arrow.int64(),
        "DOUBLE": arrow.float64(),
        "BOOLEAN": arrow.bool_(),
        "TIMESTAMP": arrow.timestamp("us"),
        "VARCHAR[]": arrow.list_(arrow.string()),
        "DOUBLE[]": arrow.list_(arrow.float64()),
    }
    return arrow.schema([(name, types[kind]) for name, kind in columns.items()])


def _check_columns(schema: Any, found: Any, path: str) -> None:
    for field in schema:
        if field.name in found.names and not found.field(field.name).type.equals(field.type):
            there = found.field(field.name).type
            raise DamagedError(f"{field.name} is {there}, not {field.type}, in {path}")


def _check_question(engine: Any, sql: str) -> None:
    statements = engine.extract_statements(sql)
    if len(statements) != 1:
        raise NoQuestionError(f"it is {len(statements)} statements" if statements else "it is empty")
    kind = statements[0].type.name
    if kind not in _READS:
        raise NoQuestionError(f"{kind.replace('_', ' ')} does not only read")


def _open_nothing_more(memory: int) -> None:
    """From here on nothing is opened or written, and memory has an end. What is open stays so."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    with contextlib.suppress(OSError):  # only Linux says, and only Linux keeps, how much there may be
        taken = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
        _limit(resource.RLIMIT_DATA, int(taken.split()[1]) * 1024 + 2 * memory + _BESIDES)
    _limit(resource.RLIMIT_NOFILE, 0)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (lower, lower))
