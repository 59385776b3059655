"""The database of a store: an SQLite file, or a PostgreSQL server by its address.

Both are written one change at a time, and read through connections that cannot write. Errors of drivers leave
here as one line with its cure; an address is shown without its password.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sqlite3
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import NullPool

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, InUseError, ProfilingError
from model_profiling.core.files import StrPath
from model_profiling.core.hints import needed
from model_profiling.core.safe_read import is_there
from model_profiling.store.tables import METADATA, SCHEMA_VERSION, VERSION, VIEWS

VARIABLE = "SME2PROF_STORE"
DEFAULT = "sme2prof.db"
BUSY_S = 30.0
"""How long to wait for another process that writes."""
_AT_ONCE = 500
"""Rows that a server sends in one step."""
_SERVER = "postgresql://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a query may use."""

    rows: int | None = None
    """The most rows to return; None for all."""
    seconds: float = 60.0
    memory: int = 1 << 30
    """Bytes of the answer; for SQLite also of everything that SQLite holds in this process."""

    @property
    def read(self) -> int:
        """How many rows to read: one more, to see whether there are more."""
        return sys.maxsize if self.rows is None else self.rows + 1


RowStream = tuple[list[str], Iterable[tuple[Any, ...]]]
"""The names of an answer's columns, and its rows, to be read one by one."""


class Database(ABC):
    address: str
    """As it may be shown."""

    @abstractmethod
    def make_engine(self, *, write: bool) -> Engine: ...

    @functools.cached_property
    def reader(self) -> Engine:
        return self.make_engine(write=False)

    @functools.cached_property
    def writer(self) -> Engine:
        return self.make_engine(write=True)

    @abstractmethod
    def ask(self, sql: str, limits: Limits) -> contextlib.AbstractContextManager[RowStream]:
        """Run a query that somebody else wrote."""

    @abstractmethod
    def worded(self, problem: BaseException) -> ProfilingError | None:
        """The error in the kit's words; None if it is not about reaching or opening the database."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._in_our_words(), self.reader.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that excludes other writers: all of it is kept, or nothing."""
        with self._in_our_words(), self.writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _in_our_words(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as problem:
            raise self.worded(problem.orig or problem) or problem from problem

    def prepare(self, *, make: bool) -> None:
        """Refuse what is not a store of this version; with `make`, create the tables and views first."""
        with self.writing() if make else self.reading() as connection:
            if make and not sa.inspect(connection).has_table(VERSION.name):
                METADATA.create_all(connection)
                for view in VIEWS.values():
                    connection.exec_driver_sql(f"CREATE VIEW {view.name} AS {view.select}")
                connection.execute(VERSION.insert().values(version=SCHEMA_VERSION))
            if not sa.inspect(connection).has_table(VERSION.name):
                raise InputError(f"{self.address} is not a store", "name one that `sme2prof store add` made")
            version = connection.execute(sa.select(VERSION.c.version)).scalar_one()
        if version != SCHEMA_VERSION:
            raise InputError(
                f"{self.address} was made by another version of the kit", "use that version, or another store"
            )


def find_database(named: StrPath | None) -> Database:
    """The database at `named`, else at $SME2PROF_STORE, else in the file `sme2prof.db`."""
    address = store_address(named)
    if address.startswith(_SERVER):
        return PostgresServer(address)
    if "://" in address:
        raise InputError(
            "this is not the address of a store", f"name a file, or a server: {_SERVER}USER@HOST/DATABASE"
        )
    return SqliteFile(Path(address).expanduser())


def store_address(named: StrPath | None = None) -> str:
    return os.fspath(named) if named is not None else os.environ.get(VARIABLE) or DEFAULT


class SqliteFile(Database):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def prepare(self, *, make: bool) -> None:
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder", "name the file of a store")
        if make:
            files.make_folder(self.path.parent)
        elif not is_there(self.path):
            cure = f"create one: sme2prof store add RUN_DIR --store {self.path}"
            raise InputError(f"there is no store {self.path}", cure)
        super().prepare(make=make)

    def make_engine(self, *, write: bool) -> Engine:
        engine = sa.create_engine(
            "sqlite://", creator=self._connect if write else self._connect_read_only, poolclass=NullPool
        )
        # Python's driver begins transactions late, when two processes may already have read the same state.
        begin = "BEGIN IMMEDIATE" if write else "BEGIN"
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        return connection

    def _connect_read_only(self) -> sqlite3.Connection:
        """In a folder that cannot be written, SQLite cannot make the files through which processes see each
        other's changes; nobody else writes there, either."""
        address = f"{self.path.absolute().as_uri()}?mode=ro"
        with contextlib.suppress(sqlite3.OperationalError):
            return _opened(address)
        wal = self.path.with_name(f"{self.path.name}-wal")
        return _opened(address if is_there(wal) else f"{address}&immutable=1")

    @contextlib.contextmanager
    def ask(self, sql: str, limits: Limits) -> Iterator[RowStream]:
        until = time.monotonic() + limits.seconds
        try:
            with contextlib.closing(self._connect_read_only()) as connection:
                _guard(connection, limits, until)
                cursor = connection.execute(sql)
                names = [column[0] for column in cursor.description or ()]
                yield names, itertools.islice(cursor, limits.read)
        except (sqlite3.Error, sqlite3.Warning, MemoryError) as problem:
            if "interrupted" in str(problem):
                if time.monotonic() < until:
                    raise KeyboardInterrupt from problem
                raise too_slow(limits) from problem
            if isinstance(problem, MemoryError) or "too big" in str(problem):
                raise too_large(limits) from problem
            raise self.worded(problem) or unanswered(str(problem)) from problem

    def worded(self, problem: BaseException) -> ProfilingError | None:
        message = str(problem)
        if "not a database" in message:
            return InputError(f"{self.path} is not a store", "name a file that `sme2prof store add` made")
        if "locked" in message or "busy" in message:
            return InUseError(f"{self.path} is locked by another process", "try again when that has ended")
        if "malformed" in message:
            return FormatError(f"{self.path} is damaged", "save what is left: sqlite3 FILE .recover")
        if any(words in message for words in ("unable to open", "readonly", "disk")):
            return InputError(f"{self.path}: {message}", "check its folder, permissions and the disk")
        return None


def _opened(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_FORBIDDEN = frozenset({"load_extension", "fts3_tokenizer"})
_STEPS = 10_000
"""Steps of SQLite between two looks at the clock."""
_LONGEST_TEXT = 64 << 20
_LONGEST_PATTERN = 200


def _guard(connection: sqlite3.Connection, limits: Limits, until: float) -> None:
    """Let SQL only read, until the time is up and within the memory."""
    connection.execute(f"PRAGMA hard_heap_limit = {limits.memory}")
    if hasattr(connection, "setlimit"):  # since Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(_LONGEST_TEXT, limits.memory))
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, _LONGEST_PATTERN)
    connection.set_authorizer(_allow)
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)


def _allow(action: int, _first: str | None, name: str | None, *_: str | None) -> int:
    reads = action in _READS and not (action == sqlite3.SQLITE_FUNCTION and name in _FORBIDDEN)
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY


class PostgresServer(Database):
    def __init__(self, address: str) -> None:
        try:
            self.url: URL = sa.make_url(address).set(drivername="postgresql+psycopg")
        except (sa.exc.ArgumentError, ValueError) as problem:
            raise InputError(
                "this is not the address of a server", f"write {_SERVER}USER@HOST/DATABASE"
            ) from problem
        public = self.url.set(drivername="postgresql", query={})
        self.address = public.render_as_string(hide_password=True)
        self.driver = needed("psycopg", "store-server")

    def make_engine(self, *, write: bool) -> Engine:
        engine = sa.create_engine(
            self.url,
            poolclass=NullPool,
            connect_args={"connect_timeout": int(BUSY_S), "application_name": "sme2prof"},
        )
        if write:
            sa.event.listen(engine, "begin", _exclude_writers)
        else:
            engine = engine.execution_options(postgresql_readonly=True)
        return engine

    @contextlib.contextmanager
    def ask(self, sql: str, limits: Limits) -> Iterator[RowStream]:
        """A cursor on the server takes one SELECT, and nothing that writes. Rows come one by one, so that
        only one of them, which PostgreSQL bounds at 1 GB, is received before its size is known."""
        until = time.monotonic() + limits.seconds
        try:
            with contextlib.closing(self.reader.raw_connection()) as pooled:
                connection: Any = pooled.driver_connection
                connection.read_only = True

                def limit_time() -> None:
                    """Before each step, because SQL could change the setting."""
                    left = max(1, round(1000 * (until - time.monotonic())))
                    connection.execute(f"SET LOCAL statement_timeout = {left}")

                def rows() -> Generator[tuple[Any, ...], None, None]:
                    left = limits.read
                    while left:
                        limit_time()
                        step = reading.stream(f"FETCH {min(left, _AT_ONCE)} FROM answer")
                        count = 0
                        for count, row in enumerate(step, start=1):  # noqa: B007  counts them
                            yield row
                        left = left - count if count else 0

                limit_time()
                with connection.cursor(name="answer") as cursor, connection.cursor() as reading:
                    cursor.execute(sql)
                    with contextlib.closing(rows()) as answer:
                        yield [column.name for column in cursor.description or ()], answer
        except (self.driver.Error, sa.exc.DBAPIError) as error:
            problem = getattr(error, "orig", None) or error
            if isinstance(problem, self.driver.errors.QueryCanceled):
                raise too_slow(limits) from error
            diagnosis = getattr(problem, "diag", None)
            message = (diagnosis and diagnosis.message_primary) or str(problem)
            too_long = isinstance(problem, self.driver.errors.ProgramLimitExceeded)
            if too_long or "memory alloc" in message:  # a value or a row above PostgreSQL's limit of 1 GB
                raise too_large(limits) from error
            raise self.worded(problem) or unanswered(message) from error

    def worded(self, problem: BaseException) -> ProfilingError | None:
        message = " ".join(str(problem).split())
        if self.url.password:
            message = message.replace(str(self.url.password), "***")
        if "authentication failed" in message or "no password" in message:
            return InputError(
                f"{self.address} refuses this user or password",
                "check the address; a password may also be in $PGPASSWORD or ~/.pgpass",
            )
        if isinstance(problem, self.driver.errors.InsufficientPrivilege):
            return InputError(f"{self.address}: {message}", "ask for a role that may do this")
        if isinstance(problem, self.driver.errors.LockNotAvailable | self.driver.errors.DeadlockDetected):
            return InUseError(f"{self.address} is locked by another process", "try again when that has ended")
        if isinstance(problem, self.driver.OperationalError):
            return InputError(
                f"cannot use {self.address}: {message}", "check the address, and that the server runs"
            )
        return None


def _exclude_writers(connection: Connection) -> None:
    """One writer at a time, as in SQLite."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_S}s'")
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7360021)")


def too_slow(limits: Limits) -> InputError:
    return InputError(
        f"the query took longer than {limits.seconds:g} s and was stopped",
        "query fewer rows, or raise the limit: sme2prof query --time-limit SECONDS",
    )


def too_large(limits: Limits) -> InputError:
    return InputError(
        f"the query needs more than {limits.memory / (1 << 20):.0f} MB of memory",
        "query fewer rows or columns, or use the database's own tools",
    )


def unanswered(message: str) -> InputError:
    if "not authorized" in message or "prohibited" in message:
        return InputError("a query may only read the tables of the store", "write one SELECT")
    reason = " ".join(message.split()).rstrip(".")
    return InputError(
        f"the database cannot run the query: {reason}",
        "correct the SELECT; `sme2prof query --views` lists tables and columns",
    )
