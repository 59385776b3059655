"""A store of runs, opened: `Store.open(address)` finds it, `add` puts runs in, `connection` asks DuckDB.

    store.json                                   that it is one, and of which version
    log/00000001.json ...                        every change, in order
    data/<table>/month=2026-11/<hash>.parquet    rows, by the month they were measured in

Readers read the log and exactly the files that it names: what a killed process left behind is read by nobody.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.check import CheckList
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import plural
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.records import parse_flat, read_json_object, record_json
from model_profiling.core.safe_read import is_there
from model_profiling.store import data_files
from model_profiling.store.connection import connect, now, rows_of
from model_profiling.store.data_files import Contents, stamp
from model_profiling.store.labels import Labels, check_tag, with_commit
from model_profiling.store.log import FOLDER as LOG
from model_profiling.store.log import Log
from model_profiling.store.places import fetch_store, is_remote, store_address, store_command
from model_profiling.store.query import DEFAULT_LIMITS, Answer, Limits, Params, ask
from model_profiling.store.tables import TABLES

if TYPE_CHECKING:
    import duckdb

    from model_profiling.store.adding import Added
    from model_profiling.store.maintenance import Compacted, Repaired


MARK = "store.json"
_FEWEST_LETTERS = 4
"""Of a run_id, to name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    schema_version: Literal[1] = 1
    kind: Literal["sme2prof store"] = "sme2prof store"
    made: str = ""
    kit: str = ""


class Store:
    """Made by `open`. It sees what was in the store when it was last asked; nothing is held locked."""

    def __init__(self, address: str, root: Path) -> None:
        self.address = address
        self.root = root
        self._log = Log(root)
        self._contents = Contents()

    @classmethod
    def open(cls, address: StrPath | None = None, *, make: bool = False) -> Store:
        """The store at `address`, else at $SME2PROF_STORE, else in `sme2prof_store`; with `make` an empty one
        where there is none."""
        named = store_address(address)
        if is_remote(named) and make:
            raise InputError(
                f"{named} can only be read", "add to a folder of this machine, and copy that there"
            )
        root = _fetched(named) if is_remote(named) else as_path(named)
        if make and not is_there(root / MARK):
            _make_store(root)
        if not is_store(root):
            if is_there(root) and not root.is_dir():
                raise InputError(f"{root} is no folder, so no store", "name the folder of a store")
            raise InputError(
                f"there is no store in {root}", f"make one: sme2prof store add RUN_DIR --store {root}"
            )
        mark = root / MARK
        content = read_json_object(mark, "name a folder that holds a store")
        if isinstance(version := content.get("schema_version"), int) and version > 1:
            raise FormatError(f"{mark} is of version {version}, which a later kit made", "update the kit")
        parse_flat(_Mark, content, str(mark), "name a folder that holds a store")
        return cls(named, root.resolve())

    def contents(self) -> Contents:
        """What the store holds now."""
        self._contents.catch_up(self._log)
        return self._contents

    def add(
        self,
        run_dirs: Iterable[StrPath],
        labels: Labels | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Add every run in `run_dirs`, which are run directories or folders above some.

        A run that is there is not added twice, however it was moved; one that was continued replaces what it
        was. What cannot be read is told in `refused`, and the others are added; files that are named beside
        folders are left out. Without a commit in `labels`
        it is the one that CI names, or that of git in the current folder.
        """
        self._check_writable()
        # Who only asks loads none of what runs are read with.
        from model_profiling.run.folders import expand_runs
        from model_profiling.store.adding import Adder
        from model_profiling.store.maintenance import AFTER, compact

        named = [as_path(run_dir) for run_dir in run_dirs]
        folders = [path for path in named if not path.is_file()]
        left_out = [path for path in named if folders and path.is_file()]
        found = expand_runs(folders or named)
        adder = Adder(
            self.root, self._log, self.contents(), with_commit(labels or Labels()), progress or Silent()
        )
        added = replace(adder.add(found), files_left_out=tuple(left_out))
        if self._contents.unmerged >= AFTER:
            compact(self.root, self._log, self._contents, all_files=False)
        return added

    def compact(self, *, grace_s: float | None = None) -> Compacted:
        """Merge all files of each table and month; remove what nothing has named for `grace_s`, or a day."""
        self._check_writable()
        from model_profiling.store.maintenance import GRACE_S, compact

        grace_s = GRACE_S if grace_s is None else grace_s
        return compact(self.root, self._log, self.contents(), grace_s=grace_s)

    def _check_writable(self) -> None:
        if is_remote(self.address):
            raise InputError(f"{self.address} can only be read", "change the store that it was copied from")

    def tag(
        self, run_ids: Sequence[str], tags: Sequence[str], *, note: str = "", remove: bool = False
    ) -> None:
        """Give runs tags, or take them away."""
        self._check_writable()
        from model_profiling.store.adding import add_tags

        sign = "-" if remove else ""
        named = [f"{sign}{check_tag(tag)}" for tag in tags]
        known = self.contents().runs(self.root)
        if unknown := [run_id for run_id in run_ids if run_id not in known]:
            raise InputError(
                f"there is no run {unknown[0]} in {self.address}",
                f"see: {store_command('list', self.address)}",
            )
        rows = [(run_id, tag, now(), note) for run_id in run_ids for tag in named]
        add_tags(self.root, self._log, self._contents, rows)

    def check(self, progress: Progress | None = None) -> CheckList:
        """Whether everything is there, as it was written; each line with its cure."""
        from model_profiling.store.maintenance import check_store

        return check_store(self.root, self._log, progress)

    def repair(self, progress: Progress | None = None) -> Repaired:
        """Leave out what is damaged; see `check`."""
        self._check_writable()
        from model_profiling.store.maintenance import repair_store

        done = repair_store(self.root, self._log, progress)
        self._contents = Contents()
        return done

    def find(self, word: str) -> str:
        """The run_id that `word` begins, or of the only run that has this name."""
        known = self.contents().runs(self.root)
        found = [run_id for run_id in known if len(word) >= _FEWEST_LETTERS and run_id.startswith(word)]
        if not found:
            named = self.rows("SELECT run_id FROM runs WHERE name = ?", [word])
            found = [str(row["run_id"]) for row in named]
        if len(found) != 1:
            told = f"{plural(len(found), 'run')} are called" if found else "there is no run"
            raise InputError(
                f"{told} {word} in {self.address}", f"see: {store_command('list', self.address)}"
            )
        return found[0]

    def files(self) -> dict[str, list[str]]:
        """The files of each table that count, checked to be what the log says of them."""
        contents = self.contents()
        return {name: data_files.checked_paths(self.root, contents.of_table(name)) for name in TABLES}

    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB with a view of each table, as the store is now; close it when done."""
        return connect(self.files(), list(self._contents.replaced.items()))

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
        """What one question of the kit's own answers; for several, `connection` and `rows_of`."""
        with self.connection() as made:
            return rows_of(made, sql, params)

    def query(self, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS) -> Answer:
        """What anybody's question in SQL answers, asked where it can change nothing and within `limits`."""
        return ask(self, sql, params, limits)


def is_store(folder: Path) -> bool:
    """Whether `folder` says that it is one."""
    return is_there(folder / MARK) and is_there(folder / LOG)


def _fetched(address: str) -> Path:
    return fetch_store(address, MARK)


def _make_store(root: Path) -> None:
    """An empty store; where two processes make it at once, both have made the same."""
    held = {path.name for path in root.iterdir()} if root.is_dir() else set()
    if MARK not in held and any(not name.startswith(".") for name in held - {LOG, data_files.FOLDER}):
        raise InputError(f"{root} holds other files, and no store", "name another folder for the store")
    files.make_folder(root)
    files.make_folder(files.real_folder(root, root / LOG))
    mark = _Mark(made=stamp(), kit=__version__)
    files.write_json(root / MARK, record_json(mark))


# The runs of a store in short, the newest first.

_RUNS = """
    SELECT run_id, name, measured_at, added_at, model, dtype, backend, device, device_name, platform, times,
           state, commit, branch, dirty, sweep, run_dir,
           (SELECT list(tag ORDER BY tag) FROM tags WHERE tags.run_id = runs.run_id) AS tags,
           (SELECT min(median_ms) FROM experiments WHERE experiments.run_id = runs.run_id) AS median_ms,
           count(*) OVER () AS matching
    FROM runs
    WHERE ($1 IS NULL OR model = $1) AND ($2 IS NULL OR device = $2)
      AND ($3 IS NULL OR run_id IN (SELECT run_id FROM tags WHERE tag = $3))
    ORDER BY coalesce(measured_at, added_at) DESC, run_id LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class ListedRun:
    run_id: str
    name: str
    measured_at: datetime.datetime | None
    added_at: datetime.datetime
    model: str
    dtype: str
    backend: str
    device: str
    device_name: str
    platform: str
    times: str
    state: str
    commit: str
    branch: str
    dirty: bool | None
    sweep: str
    run_dir: str
    tags: tuple[str, ...]
    median_ms: float | None
    """Of its fastest experiment; None where times are no latencies."""


@dataclass(frozen=True, slots=True)
class Listing:
    runs: tuple[ListedRun, ...]
    matching: int
    """How many there are, of which `runs` are the newest."""


def listed_runs(
    store: Store,
    *,
    model: str | None = None,
    device: str | None = None,
    tag: str | None = None,
    last: int = 50,
) -> Listing:
    """The newest runs that fit."""
    rows = store.rows(_RUNS, [model, device, tag, last])
    matching = int(rows[0]["matching"]) if rows else 0
    found = []
    for row in rows:
        told = {name: value for name, value in row.items() if name != "matching"}
        found.append(ListedRun(**{**told, "tags": tuple(row["tags"] or ())}))
    return Listing(tuple(found), matching)
