"""Stores of runs: `Store.open(address)` opens one, `add` adds runs, `query` answers SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.hints import needed
from model_profiling.core.stdio import current_progress
from model_profiling.store.database import (
    Database,
    Limits,
    find_database,
    store_address,
    too_large,
    unanswered,
)
from model_profiling.store.labels import Labels, check_tag, with_commit
from model_profiling.store.tables import COLUMN_TYPES, FLAGS, IN_DATABASE

if TYPE_CHECKING:
    import pandas

DEFAULT_LIMITS = Limits()
FEWEST_LETTERS = 6
"""The shortest prefix of a run_id that names a run."""
_LONGEST_SQL = 100_000

Outcome = Literal["added", "continued", "already there", "an earlier state of one that is there"]
_NEW = ("added", "continued")


@dataclass(frozen=True, slots=True)
class AddedRun:
    run_dir: Path
    run_id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Refused:
    run_dir: Path
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Added:
    runs: tuple[AddedRun, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def new(self) -> tuple[AddedRun, ...]:
        return tuple(run for run in self.runs if run.outcome in _NEW)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query; iterating gives each row as a mapping from column to value."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool
    """Whether there were more rows than were asked for."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """Needs the extra `pandas`."""
        frame: pandas.DataFrame = needed("pandas", "pandas").DataFrame(list(self.rows), columns=self.columns)
        return frame


class Store:
    """Opened by `open`. Each call connects to the database and sees it as it is then."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.address = database.address
        """As it may be shown: without a password."""

    @classmethod
    def open(cls, address: StrPath | None = None, *, make: bool = False) -> Store:
        """Open (with `make`, create) the store at `address`, else $SME2PROF_STORE, else `sme2prof.db`."""
        database = find_database(address)
        database.prepare(make=make)
        return cls(database)

    def command(self, words: str) -> str:
        """The `sme2prof store` command for `words`, with `--store` if this is not the default one."""
        named = "" if self.address == store_address() else f" --store {self.address}"
        return f"sme2prof store {words}{named}"

    def add(self, run_dirs: Iterable[StrPath], labels: Labels | None = None) -> Added:
        """Add every run in `run_dirs`, which are run directories or folders above some.

        A run that is in the store is not added again, even if it was moved; a continued run replaces its
        earlier state and keeps its tags. What cannot be read is in `refused`, and the rest is added. If
        `labels` has no commit, it is the one that CI names, or git's in the current folder.
        """
        from model_profiling.runs import Run
        from model_profiling.runs.folders import expand_runs
        from model_profiling.store.run_rows import rows_of_run, run_row

        labels = with_commit(labels or Labels())
        added: list[AddedRun] = []
        refused: list[Refused] = []
        current_progress().stage("adding runs")
        expanded = expand_runs(map(as_path, run_dirs))
        for place, run_dir in enumerate(expanded):
            current_progress().advance(place, len(expanded), run_dir.name)
            try:
                run = Run.open(run_dir)
                row = run_row(run, labels)
                with self.database.reading() as connection:
                    new = _outcome(connection, row)[0] in _NEW
                tables = rows_of_run(run, row) if new else {}
            except (FormatError, InputError) as problem:
                refused.append(Refused(run_dir, problem.problem, problem.fix))
                continue
            added.append(AddedRun(run.path, row["run_id"], self._write(row, tables, labels.tags)))
        return Added(tuple(added), tuple(refused))

    def _write(
        self, row: Mapping[str, Any], tables: Mapping[str, list[dict[str, Any]]], more_tags: Iterable[str]
    ) -> Outcome:
        runs = IN_DATABASE["runs"]
        with self.database.writing() as connection:
            outcome, tags = _outcome(connection, row)  # another process may have added it meanwhile
            if tables and outcome in _NEW:
                _delete(connection, row["run_id"])
                for name, rows in tables.items():
                    if rows:
                        connection.execute(IN_DATABASE[name].insert(), rows)
            tags = {**tags, **dict.fromkeys(more_tags, "")}
            connection.execute(runs.update().where(runs.c.run_id == row["run_id"]).values(tags=tags))
        return outcome

    def tag(
        self, run_ids: Sequence[str], tags: Sequence[str], note: str = "", *, remove: bool = False
    ) -> None:
        """Give runs tags, or remove them."""
        runs = IN_DATABASE["runs"]
        checked = [check_tag(tag) for tag in tags]
        with self.database.writing() as connection:
            for run_id in run_ids:
                row = connection.execute(sa.select(runs.c.tags).where(runs.c.run_id == run_id)).first()
                if row is None:
                    raise self._no_run(run_id)
                changed = {tag: text for tag, text in row.tags.items() if tag not in checked}
                changed |= {} if remove else dict.fromkeys(checked, note)
                connection.execute(runs.update().where(runs.c.run_id == run_id).values(tags=changed))

    def remove(self, run_ids: Sequence[str]) -> None:
        """Remove runs; their run directories stay as they are."""
        with self.database.writing() as connection:
            for run_id in run_ids:
                if not _delete(connection, run_id):
                    raise self._no_run(run_id)

    def find(self, word: str) -> str:
        """Return the run_id that begins with `word`."""
        if len(word) < FEWEST_LETTERS:
            raise InputError(
                f"'{word}' is too short for a run", f"give at least {FEWEST_LETTERS} letters of its id"
            )
        sql = "SELECT run_id FROM runs WHERE substr(run_id, 1, :letters) = :word"
        rows = self.rows(sql, word=word, letters=len(word))
        if len(rows) > 1:
            raise InputError(f"{len(rows)} runs have an id that begins with {word}", "give more of the id")
        if not rows:
            raise self._no_run(word)
        return str(rows[0]["run_id"])

    def _no_run(self, word: str) -> InputError:
        return InputError(
            f"there is no run {word} in {self.address}", f"list the runs: {self.command('list')}"
        )

    def rows(self, sql: str, **params: object) -> list[dict[str, Any]]:
        """Return the rows of one of the kit's own statements, with values for its parameters (`:model`).
        A column has the type of the store's column of that name: moments are datetimes in UTC."""
        with self.database.reading() as connection:
            answer = connection.execute(sa.text(sql).columns(**COLUMN_TYPES), params)
            columns = list(answer.keys())
            flags = [column for column in columns if column in FLAGS]
            rows = [dict(zip(columns, row, strict=True)) for row in answer.all()]
        for row in rows:
            row |= {flag: bool(row[flag]) for flag in flags if isinstance(row[flag], int)}
        return rows

    def query(self, sql: str, limits: Limits = DEFAULT_LIMITS) -> Answer:
        """Return the answer to one SELECT, which can only read the store, within `limits`."""
        if len(sql) > _LONGEST_SQL:
            raise InputError(f"the query has {len(sql):,} characters", f"use at most {_LONGEST_SQL:,}")
        rows, held = [], 0
        with self.database.ask(sql, limits) as (columns, answer):
            if not columns:
                raise unanswered("it returns no rows")
            for row in answer:
                held += sum(64 + (len(value) if isinstance(value, str | bytes) else 0) for value in row)
                if held > limits.memory:
                    raise too_large(limits)
                rows.append(tuple(map(_plain, row)))
        most = len(rows) if limits.rows is None else limits.rows
        return Answer(_unique(columns), tuple(rows[:most]), len(rows) > most)


def _plain(value: Any) -> Any:
    """A value that JSON, CSV and terminals have: moments and other types become text."""
    match value:
        case None | bool() | int() | float() | str() | list() | dict():
            return value
        case datetime():
            return value.isoformat(sep=" ")
        case bytes():
            return value.hex()
    return str(value)


def _unique(columns: Sequence[str]) -> tuple[str, ...]:
    """Make column names unique, as files and mappings need them."""
    counts = [columns[: place + 1].count(column) for place, column in enumerate(columns)]
    return tuple(
        column if count == 1 else f"{column}_{count}" for column, count in zip(columns, counts, strict=True)
    )


def _outcome(connection: Connection, row: Mapping[str, Any]) -> tuple[Outcome, dict[str, str]]:
    """What adding a run means for the store as it is now, and the tags that the run has there."""
    runs = IN_DATABASE["runs"]
    stored = connection.execute(
        sa.select(runs.c.processes, runs.c.state, runs.c.tags).where(runs.c.run_id == row["run_id"])
    ).first()
    if stored is None:
        return "added", {}
    mine, theirs = (
        (processes, state in ("finished", "failed"))
        for processes, state in ((row["processes"], row["state"]), (stored.processes, stored.state))
    )
    if mine == theirs:
        return "already there", stored.tags
    return ("continued" if mine > theirs else "an earlier state of one that is there"), stored.tags


def _delete(connection: Connection, run_id: str) -> bool:
    """Delete all rows of a run; return whether there was such a run."""
    for table in reversed([*IN_DATABASE.values()]):
        deleted = connection.execute(table.delete().where(table.c.run_id == run_id))
    return bool(deleted.rowcount)


def list_runs(
    store: Store, *, last: int, model: str | None = None, device: str | None = None, tag: str | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The newest runs that match, and how many match. `median_ms` is that of a run's fastest experiment; None
    if its times are not latencies."""
    runs, experiments = IN_DATABASE["runs"], IN_DATABASE["experiments"]
    medians = sa.select(sa.func.min(experiments.c.median_ms)).where(experiments.c.run_id == runs.c.run_id)
    conditions = [runs.c.model == model] if model is not None else []
    conditions += [runs.c.device == device] if device is not None else []
    conditions += [runs.c.tags[check_tag(tag)].as_string().is_not(None)] if tag is not None else []
    newest = sa.func.coalesce(runs.c.measured_at, runs.c.added_at).desc()
    listed = sa.select(runs, medians.scalar_subquery().label("median_ms")).where(*conditions)
    with store.database.reading() as connection:
        rows = connection.execute(listed.order_by(newest, runs.c.run_id).limit(last)).mappings()
        counted = sa.select(sa.func.count()).select_from(runs).where(*conditions)
        return [dict(row) for row in rows], connection.execute(counted).scalar_one()
