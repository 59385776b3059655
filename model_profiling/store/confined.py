"""Runs SQL queries that somebody else wrote, such as an assistant, in a process that can open nothing.

DuckDB alone does not confine SQL: a COPY inside a WITH counts as a SELECT and may write whatever the engine
may read, and DuckDB does not count all memory that its functions allocate. So the child maps the store's
files into memory, then has the system forbid it to open files or sockets, write files or take more memory;
DuckDB never learns a path. The query comes in as JSON, the answer goes out as an Arrow stream, a refusal as
one line of JSON on standard error.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.core import process
from model_profiling.core.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.core.hints import needed
from model_profiling.store.connection import in_memory, lock_down, make_views
from model_profiling.store.data_files import FIX, arrow_schema, check_columns
from model_profiling.store.query import Answer, Limits, asking, check_question
from model_profiling.store.tables import TABLES, OnlyArrow

if TYPE_CHECKING:
    import duckdb

    from model_profiling.store.store import Store

_REFUSED = 3
"""The exit code of a process that said why it did not answer."""
_ERRORS = {kind.__name__: kind for kind in (FormatError, InputError, RunError, SetupError)}
_FACTS = b"facts"
"""Key in the answer's metadata: DuckDB's types, and whether there were more rows."""
_STATUS = Path("/proc/self/status")
_BESIDES = 256 << 20
"""Bytes beyond what DuckDB counts, for Arrow and other threads."""
_KIT = Path(__file__).resolve().parents[2]
# The child can import only Python's own modules, the two libraries and the kit, and nothing elsewhere under
# their names.
_START = (
    "import sys; sys.path += sys.argv[1:]; from model_profiling.store.confined import main; sys.exit(main())"
)


def ask_confined(store: Store, sql: str, limits: Limits) -> Answer:
    """Answer a query in a confined process, within `limits`."""
    arrow, ipc = needed("pyarrow", "store"), needed("pyarrow.ipc", "store")
    request = {"paths": store.files(), "sql": sql, "rows": limits.rows, "memory": limits.memory}
    # Arrow's own pool reserves a gigabyte of addresses at the start.
    environment = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    child = process.start(
        [sys.executable, "-I", "-S", "-c", _START, *_import_folders()], fed=True, env=environment
    )
    try:
        said, problem = child.communicate(json.dumps(request).encode(), timeout=limits.seconds)
    except subprocess.TimeoutExpired as late:
        raise InputError(
            f"the query took longer than {limits.seconds:g} s and was stopped", "query fewer rows"
        ) from late
    finally:
        process.end(child)
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    if child.returncode == _REFUSED:
        kind, *told = json.loads(problem.splitlines()[-1])
        raise _ERRORS[kind](*told)
    if child.returncode:
        raise RunError(
            f"DuckDB crashed during the query (exit code {child.returncode})",
            "query fewer rows",
            log_tail=" ".join(problem.decode("utf-8", "replace").split()),
        )
    with ipc.open_stream(arrow.py_buffer(said)) as reader:
        table, facts = reader.read_all(), json.loads(reader.schema.metadata[_FACTS])
    return Answer(
        tuple(table.schema.names), tuple(facts["types"]), facts["more"], table.replace_schema_metadata(None)
    )


def _import_folders() -> list[str]:
    homes = []
    for name in ("duckdb", "pyarrow"):
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else needed(name, "store").__file__
        homes += [Path(origin).parents[1]] if origin else []
    return [str(place) for place in dict.fromkeys((*homes, _KIT))]


# The child process.


def main() -> int:
    sys.meta_path.insert(0, OnlyArrow())
    try:
        _answer(**json.loads(sys.stdin.buffer.read()))
    except ProfilingError as problem:
        sys.stderr.write(json.dumps([type(problem).__name__, problem.problem, problem.fix]))
        return _REFUSED
    return 0


def _answer(paths: Mapping[str, Sequence[str]], sql: str, rows: int | None, memory: int) -> None:
    ipc = needed("pyarrow.ipc", "store")
    with open_mapped(paths, memory) as made:
        check_question(sql)
        open_nothing_more(memory)
        with asking(made, sql, limits=Limits(rows=rows, memory=memory)) as coming:
            found = coming.whole()
    facts = json.dumps({"types": found.types, "more": found.more})
    table = found.table.replace_schema_metadata({_FACTS: facts})
    with ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
        writer.write_table(table)


def open_mapped(paths: Mapping[str, Sequence[str]], memory: int) -> duckdb.DuckDBPyConnection:
    """Connect to the store's views, over files that are mapped into memory."""
    made = in_memory(memory)
    for name in TABLES:
        made.register(f"files_of_{name}", _mapped(name, paths.get(name, ())))
    make_views(made, {name: f"SELECT * FROM files_of_{name}" for name in TABLES})  # noqa: S608  our own text
    lock_down(made)
    return made


def _mapped(name: str, paths: Sequence[str]) -> Any:
    """The rows of a table's files, with no file left open."""
    arrow, dataset = needed("pyarrow", "store"), needed("pyarrow.dataset", "store")
    schema, form = arrow_schema(TABLES[name]), dataset.ParquetFileFormat()
    if not paths:
        return schema.empty_table()
    pieces = []
    for path in paths:
        try:
            pieces.append(form.make_fragment(arrow.memory_map(path).read_buffer()))
            check_columns(schema, pieces[-1].physical_schema, Path(path))
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as problem:
            raise FormatError(f"{path} is damaged", FIX) from problem
    return dataset.FileSystemDataset(pieces, schema, form)


def open_nothing_more(memory: int) -> None:
    """From here on the process can open and write nothing more, and its memory is limited."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    with contextlib.suppress(OSError):  # only Linux reports and enforces this limit
        taken = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
        _limit(resource.RLIMIT_DATA, int(taken.split()[1]) * 1024 + 2 * memory + _BESIDES)
    _limit(resource.RLIMIT_NOFILE, 0)


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (lower, lower))
