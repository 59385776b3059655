"""Checks a store's files, and merges small ones."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import Check, CheckList, ProfilingError, check_unless
from model_profiling.core.formatting import plural
from model_profiling.core.progress import Progress, Silent
from model_profiling.store.connection import connect, rows_of
from model_profiling.store.data_files import (
    FOLDER,
    DataFile,
    Index,
    batches_in,
    checked_path,
    lock,
    merged,
    read_index,
    without_runs,
    write_index,
)
from model_profiling.store.tables import TABLES

# Merging. Adding a run makes one file for each table, and a reader opens them all. Only files of similar size
# are merged, so that a row is rewritten just a few times however many runs follow. Files that no longer count
# stay for a day: somebody may be reading them.

ALIKE = 8
"""This many files of similar size are merged; sizes are similar if less than this factor apart."""
GRACE_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Compacted:
    files_before: int
    files_after: int
    removed: int = 0
    """Files that nothing had named for the grace period, a day by default."""
    bytes_freed: int = 0


def merge_alike(root: Path, index: Index) -> Index:
    """Merge the files of a table and month of which many have similar sizes; return the new index."""
    groups: dict[tuple[str, int], list[DataFile]] = {}
    for found in index.files:
        groups.setdefault((found.folder, int(math.log(max(found.rows, 1), ALIKE))), []).append(found)
    for group in groups.values():
        if len(group) >= ALIKE:
            index = index.changed(group, merged(root, group))
    return index


def compact(root: Path, *, grace_s: float = GRACE_S) -> Compacted:
    with lock(root):
        before = index = read_index(root)
        for folder in {found.folder for found in index.files}:
            group = [found for found in index.files if found.folder == folder]
            if len(group) > 1:
                index = index.changed(group, merged(root, group))
        write_index(root, before, index)
        removed, freed = _remove_unnamed(root, index, time.time() - grace_s)
    return Compacted(len(before.files), len(index.files), removed, freed)


def _remove_unnamed(root: Path, index: Index, before: float) -> tuple[int, int]:
    """Remove files that nothing has named since `before`: merged ones, and those of killed processes."""
    removed = freed = 0
    named = {found.path for found in index.files}
    for path in _data_on_disk(root):
        with contextlib.suppress(OSError):
            seen = path.lstat()
            if path.relative_to(root).as_posix() not in named and seen.st_mtime < before:
                path.unlink()
                removed, freed = removed + 1, freed + seen.st_size
    return removed, freed


def _data_on_disk(root: Path) -> Iterator[Path]:
    for table in TABLES:
        home = root / FOLDER / table
        if home.is_symlink() or home.parent.is_symlink() or not home.is_dir():
            continue
        for month in home.glob("month=*"):
            if not month.is_symlink() and month.is_dir():
                yield from month.glob("*.parquet")
                yield from month.glob(".*.part")


# Checking that every file is as it was written and every run has all its rows.

_REPAIR = "run it with --repair to remove the damaged runs, then add them again"
_ROWS = " UNION ALL BY NAME ".join(f"FROM {name}" for name in TABLES if name not in ("runs", "tags"))
_INCOMPLETE = f"""
    SELECT run_id, any_value(run_dir) AS run_dir, count(run_dir) AS times, any_value(row_count) AS promised,
           any_value(counted) AS counted
    FROM runs FULL JOIN (SELECT run_id, count(*) AS counted FROM ({_ROWS}) GROUP BY run_id) USING (run_id)
    GROUP BY run_id HAVING times <> 1 OR promised IS DISTINCT FROM coalesce(counted, 0)
    ORDER BY run_id
"""  # noqa: S608  our own text
"""Runs that do not have exactly the rows they were added with."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that a repaired store no longer has; `run_dir` is empty if it is lost, too."""

    run_id: str
    run_dir: str


@dataclass(frozen=True, slots=True)
class Repaired:
    files_left_out: tuple[str, ...] = ()
    runs_left_out: tuple[LeftOut, ...] = ()
    needed: bool = True
    """Whether anything was damaged."""


def check_store(root: Path, progress: Progress | None = None) -> CheckList:
    index = read_index(root)
    bad_files, bad_runs, runs = _examine(root, index, progress or Silent())
    size = sum(one.bytes for one in index.files)
    rows = {name: sum(one.rows for one in index.of_table(name)) for name in TABLES}
    written = f"{plural(len(index.files), 'file')}, {size:,} bytes, unchanged since they were written"
    complete = f"{plural(runs, 'run')}, each with all its rows"
    return CheckList(
        (
            check_unless([*bad_files.values()], "files", written, _REPAIR),
            check_unless([*bad_runs.values()], "runs", complete, _REPAIR),
            Check("rows", "pass", ", ".join(f"{name} {count:,}" for name, count in rows.items())),
        )
    )


def repair_store(root: Path, progress: Progress | None = None) -> Repaired:
    """Leave out unreadable files and the runs that lost rows with them; `compact` deletes the files later."""
    with lock(root):
        index = read_index(root)
        bad_files, bad_runs, _ = _examine(root, index, progress or Silent())
        if not (bad_files or bad_runs):
            return Repaired(needed=False)
        gone = [run.run_id for run in bad_runs]
        kept: list[DataFile] = []
        for one in index.files:
            if one not in bad_files:
                kept += [one] if one.table == "tags" else without_runs(root, one, gone)
        write_index(root, index, index.changed(index.files, kept))
    return Repaired(tuple(one.path for one in bad_files), tuple(bad_runs))


def _examine(
    root: Path, index: Index, progress: Progress
) -> tuple[dict[DataFile, str], dict[LeftOut, str], int]:
    """Damaged files and incomplete runs, each with what is wrong, and the number of runs."""
    bad_files: dict[DataFile, str] = {}
    bad_runs: dict[LeftOut, str] = {}
    progress.stage("checking files")
    for place, one in enumerate(index.files):
        progress.advance(place, len(index.files), one.table)
        try:
            wrong = _damage(root, one)
        except ProfilingError as problem:
            wrong = problem.problem
        if wrong:
            bad_files[one] = wrong
    sound = {
        name: [str(root / one.path) for one in index.of_table(name) if one not in bad_files]
        for name in TABLES
    }
    with connect(sound) as made:
        for row in rows_of(made, _INCOMPLETE):
            run, counted = LeftOut(row["run_id"], row["run_dir"] or ""), row["counted"] or 0
            bad_runs[run] = (
                f"run {run.run_id} is in the store twice"
                if row["times"] > 1
                else f"run {run.run_id} has {plural(counted, 'row')} instead of {row['promised'] or 0}"
            )
        return bad_files, bad_runs, rows_of(made, "SELECT count(*) AS n FROM runs")[0]["n"]


def _damage(root: Path, found: DataFile) -> str:
    path = checked_path(root, found)
    if (told := files.sha256(path)) != found.sha256:
        return f"{path} is damaged: its hash is {told[:12]}... instead of {found.sha256[:12]}..."
    rows = sum(batch.num_rows for batch in batches_in(root, found))
    return "" if rows == found.rows else f"{path} has {plural(rows, 'row')} instead of {found.rows}"
