"""Stores of runs: `Store.open(address)` opens one, `add` adds runs, `connection` queries it with DuckDB.

store.json                                   which files count
data/<table>/month=2026-11/<name>.parquet    rows, by the month they were measured in
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_profiling.core import files
from model_profiling.core.errors import CheckList, InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.safe_read import is_there
from model_profiling.store.connection import connect, now, rows_of
from model_profiling.store.data_files import INDEX, Index, checked_path, lock, read_index, write_index
from model_profiling.store.places import fetch_store, is_remote, store_address, store_command
from model_profiling.store.query import DEFAULT_LIMITS, Answer, Limits, Params, open_answer
from model_profiling.store.tables import TABLES

if TYPE_CHECKING:
    import duckdb

    from model_profiling.store.adding import Added
    from model_profiling.store.maintenance import Compacted, Repaired
    from model_profiling.store.run_rows import Labels


_FEWEST_LETTERS = 4
"""The shortest prefix of a run_id that names a run."""


class Store:
    """Opened by `open`. Each call sees the store as it is then; no lock is kept between calls.

    Modules that only some methods need are imported there: a query does not load the code that reads runs.
    """

    def __init__(self, address: str, root: Path) -> None:
        self.address = address
        self.root = root

    @classmethod
    def open(cls, address: StrPath | None = None, *, make: bool = False) -> Store:
        """Open (with `make`, create) the store at `address`, else $SME2PROF_STORE, else `sme2prof_store`."""
        named = store_address(address)
        if is_remote(named):
            if make:
                raise InputError(
                    f"{named} is read-only",
                    ("add runs to a store on this machine, then copy that store there"),
                )
            return cls(named, fetch_store(named))
        root = as_path(named)
        if make and not is_store(root):
            _make_store(root)
        if not is_store(root):
            if is_there(root) and not root.is_dir():
                raise InputError(f"{root} is not a folder", "give the folder of a store")
            raise InputError(
                f"there is no store in {root}", f"create one: sme2prof store add RUN_DIR --store {root}"
            )
        read_index(root)
        return cls(named, root.resolve())

    def add(
        self,
        run_dirs: Iterable[StrPath],
        labels: Labels | None = None,
        progress: Progress | None = None,
    ) -> Added:
        """Add every run in `run_dirs`, which are run directories or folders above some.

        A run that is already in the store is not added again, even if it was moved; a continued run replaces
        its earlier state. Runs that cannot be read are in `refused`, and the others are added; files that are
        named beside folders are skipped. If `labels` has no commit, it is the one that CI names, or git's in
        the current folder.
        """
        self._check_writable()
        from model_profiling.run.folders import expand_runs
        from model_profiling.store.adding import Adder
        from model_profiling.store.run_rows import Labels, with_commit

        named = [as_path(run_dir) for run_dir in run_dirs]
        folders = [path for path in named if not path.is_file()]
        left_out = [path for path in named if folders and path.is_file()]
        adder = Adder(self.root, with_commit(labels or Labels()), progress or Silent())
        return replace(adder.add(expand_runs(folders or named)), files_left_out=tuple(left_out))

    def compact(self, *, grace_s: float | None = None) -> Compacted:
        """Merge the files of each table and month; remove files not named for `grace_s`, or a day."""
        self._check_writable()
        from model_profiling.store.maintenance import GRACE_S, compact

        return compact(self.root, grace_s=GRACE_S if grace_s is None else grace_s)

    def _check_writable(self) -> None:
        if is_remote(self.address):
            raise InputError(f"{self.address} is read-only", "change the original store")

    def tag(
        self, run_ids: Sequence[str], tags: Sequence[str], *, note: str = "", remove: bool = False
    ) -> None:
        """Give runs tags, or remove them."""
        self._check_writable()
        from model_profiling.store.adding import add_tags
        from model_profiling.store.run_rows import check_tag

        sign = "-" if remove else ""
        named = [f"{sign}{check_tag(tag)}" for tag in tags]
        known = {row["run_id"] for row in self.rows("SELECT run_id FROM runs")}
        if unknown := [run_id for run_id in run_ids if run_id not in known]:
            raise InputError(
                f"there is no run {unknown[0]} in {self.address}",
                f"list the runs: {store_command('list', self.address)}",
            )
        add_tags(self.root, [(run_id, tag, now(), note) for run_id in run_ids for tag in named])

    def check(self, progress: Progress | None = None) -> CheckList:
        """Check that every file is there as it was written; each line says how to fix a problem."""
        from model_profiling.store.maintenance import check_store

        return check_store(self.root, progress)

    def repair(self, progress: Progress | None = None) -> Repaired:
        """Leave out what is damaged; see `check`."""
        self._check_writable()
        from model_profiling.store.maintenance import repair_store

        return repair_store(self.root, progress)

    def find(self, word: str) -> str:
        """Return the run_id that begins with `word`, or that of the only run named `word`."""
        rows = self.rows(
            "SELECT run_id, starts_with(run_id, $1) AS begins FROM runs "
            "WHERE name = $1 OR (length($1) >= $2 AND begins)",
            [word, _FEWEST_LETTERS],
        )
        found = [row["run_id"] for row in rows if row["begins"]] or [row["run_id"] for row in rows]
        if len(found) != 1:
            problem = f"{plural(len(found), 'run')} are called" if found else "there is no run"
            raise InputError(
                f"{problem} {word} in {self.address}",
                (f"list the runs: {store_command('list', self.address)}"),
            )
        return str(found[0])

    def files(self) -> dict[str, list[str]]:
        """Return the files of each table that count, checked against the index."""
        index = read_index(self.root)
        return {
            name: [str(checked_path(self.root, found)) for found in index.of_table(name)] for name in TABLES
        }

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with a view of each table as the store is now; close it when done."""
        return connect(self.files())

    def rows(self, sql: str, params: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of one of the kit's own queries; for several, use `connection` and `rows_of`."""
        with self.connection() as made:
            return rows_of(made, sql, params)

    def query(self, sql: str, params: Params = (), limits: Limits = DEFAULT_LIMITS) -> Answer:
        """Return the answer to an SQL query, which can open nothing but the store, within `limits`."""
        with open_answer(self, sql, params, limits) as coming:
            return coming.whole()


def is_store(folder: Path) -> bool:
    return is_there(folder / INDEX)


def _make_store(root: Path) -> None:
    """Create an empty store, unless another process has just done so."""
    if root.is_dir() and any(not path.name.startswith(".") for path in root.iterdir()) and not is_store(root):
        raise InputError(f"{root} contains other files, not a store", "choose another folder for the store")
    needed("pyarrow", "store")
    files.make_folder(root)
    with lock(root):
        if not is_store(root):
            write_index(root, Index(), Index())


_RUNS = """
    SELECT run_id, name, measured_at, added_at, model, dtype, backend, device, device_name, platform, is_arm,
           times, state, commit, branch, dirty, sweep, run_dir,
           (SELECT list(tag ORDER BY tag) FROM tags WHERE tags.run_id = runs.run_id) AS tags,
           (SELECT min(median_ms) FROM experiments WHERE experiments.run_id = runs.run_id) AS median_ms,
           count(*) OVER () AS matching
    FROM runs
    WHERE ($1 IS NULL OR model = $1) AND ($2 IS NULL OR device = $2)
      AND ($3 IS NULL OR run_id IN (SELECT run_id FROM tags WHERE tag = $3))
    ORDER BY coalesce(measured_at, added_at) DESC, run_id LIMIT $4
"""


def list_runs(
    store: Store, *, model: str | None, device: str | None, tag: str | None, last: int
) -> tuple[list[dict[str, Any]], int]:
    """The newest runs that match, and how many match. The median is that of a run's fastest experiment; None
    if its times are not latencies."""
    rows = store.rows(_RUNS, [model, device, tag, last])
    matching = [row.pop("matching") for row in rows]
    return [{**row, "tags": row["tags"] or []} for row in rows], matching[0] if matching else 0
