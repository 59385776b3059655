"""Checks a store's files, and merges small ones."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.check import Check, CheckList, check_unless
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.safe_read import is_there
from model_profiling.store.data_files import FOLDER, Contents, batches_in, checked_paths, stamp, write_table
from model_profiling.store.log import Change, DataFile, Log, Replaced
from model_profiling.store.tables import TABLES

if TYPE_CHECKING:
    import pyarrow


# Many small files become few: adding a run makes one file for each table, and a reader opens them all.
# Files of like size are merged, so that a row is written a few times however many runs follow, and one
# change of the log says everything. What no longer counts stays for a day: somebody may be reading it.

AFTER = 32
"""Changes, then adding compacts by itself."""
GRACE_S = 86_400.0
_TIER = 8
"""Files are of like size where neither has so many times the rows of the other."""
_FEWEST = 4
"""Of like size, before they are merged by the way."""
_ROWS_TOGETHER = 1 << 16


@dataclass(frozen=True, slots=True)
class Compacted:
    files_before: int
    files_after: int
    removed: int = 0
    """Files that nothing named for a day."""
    bytes_freed: int = 0


def compact(
    root: Path, log: Log, contents: Contents, *, all_files: bool = True, grace_s: float = GRACE_S
) -> Compacted:
    """Merge the files of each table and month: all, or only where many of like size have come together."""
    before = len(contents.files)
    while True:
        groups = list(_groups(contents, all_files))
        merged = [rewritten(root, group, contents.replaced) for group in groups]
        gone = [found.path for group in groups for found in group]
        if _make(log, contents, gone, [found for found in merged if found]):
            break
    for name in gone:
        with contextlib.suppress(OSError):  # from now on nobody begins to read it
            os.utime(root / name, follow_symlinks=False)
    removed, freed = _remove_unnamed(root, log, contents, time.time() - grace_s)
    return Compacted(before, len(contents.files), removed, freed)


def _groups(contents: Contents, all_files: bool) -> Iterator[list[DataFile]]:
    """What is to be merged; also a single file of which rows no longer count, where all are asked for."""
    found: dict[tuple[str, int], list[DataFile]] = {}
    for one in contents.files.values():
        size = 0 if all_files else int(math.log(max(one.rows, 1), _TIER))
        found.setdefault((one.folder, size), []).append(one)
    for group in found.values():
        alone = bool(contents.replaced) and group[0].table != "tags"
        if len(group) >= (1 if alone else 2) if all_files else len(group) >= _FEWEST:
            yield group


def rewritten(root: Path, group: Sequence[DataFile], gone: Collection[str]) -> DataFile | None:
    """One file of many, without the runs that are `gone`; None where no row is left. Tags all stay."""
    table, month = group[0].table, group[0].folder.rpartition("=")[2]
    every = (batch for one in group for batch in batches_in(root, one))
    left = every if table == "tags" else (_without(batch, gone) for batch in every)
    together = _together(batch for batch in left if batch.num_rows)
    first = next(together, None)
    return None if first is None else write_table(root, table, month, _chain(first, together))


def _chain(
    first: pyarrow.RecordBatch, others: Iterable[pyarrow.RecordBatch]
) -> Iterator[pyarrow.RecordBatch]:
    yield first
    yield from others


def _without(batch: pyarrow.RecordBatch, gone: Collection[str]) -> pyarrow.RecordBatch:
    if not gone:
        return batch
    arrow, compute = needed("pyarrow", "store"), needed("pyarrow.compute", "store")
    found = compute.is_in(batch.column("run_id"), value_set=arrow.array(list(gone), arrow.string()))
    return batch.filter(compute.invert(found))


def _together(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Small batches as large ones: each is a row group of its own in the file."""
    arrow = needed("pyarrow", "store")
    held: list[pyarrow.RecordBatch] = []

    def joined() -> Iterator[pyarrow.RecordBatch]:
        if held:
            yield from arrow.Table.from_batches(held).combine_chunks().to_batches()
            held.clear()

    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= _ROWS_TOGETHER:
            yield from joined()
    yield from joined()


def _make(log: Log, contents: Contents, gone: list[str], merged: list[DataFile]) -> bool:
    """Make it the next change; False where somebody else has compacted the same files, so that what was
    merged stands for nothing."""
    while True:
        whole = contents.compacted(gone, merged)
        if log.create(contents.number + 1, whole):
            contents.take(contents.number + 1, whole)
            return True
        contents.catch_up(log)
        if any(name not in contents.files for name in gone):
            return False


def _remove_unnamed(root: Path, log: Log, contents: Contents, before: float) -> tuple[int, int]:
    """Remove files that nothing has named since `before`: of killed processes, and those that were merged;
    and changes from before one that says everything."""
    removed = freed = 0
    for path in (*_data_on_disk(root), *_old_changes(log, before)):
        name = path.relative_to(root).as_posix()
        with contextlib.suppress(OSError):
            seen = path.lstat()
            if name not in contents.files and seen.st_mtime < before:
                path.unlink()
                removed, freed = removed + 1, freed + seen.st_size
    return removed, freed


def _data_on_disk(root: Path) -> Iterator[Path]:
    """Files in the folders that the kit makes, of names that the kit gives."""
    for table in TABLES:
        home = root / FOLDER / table
        if home.is_symlink() or home.parent.is_symlink() or not home.is_dir():
            continue
        for month in home.glob("month=*"):
            if not month.is_symlink() and month.is_dir():
                yield from month.glob("*.parquet")
                yield from month.glob(".*.part")


def _old_changes(log: Log, before: float) -> Iterator[Path]:
    """Those that no reader reaches: one that says everything came after them, and was there `before`."""
    files.real_folder(log.root, log.folder)
    for number in reversed(log.numbers()):
        path = log.path(number)
        if path.lstat().st_mtime < before and log.read(number).whole:
            yield from (log.path(older) for older in log.numbers() if older < number)
            break
    yield from log.folder.glob(".*.part")


# Whether a store is what it says: every change there, every file as it was written, every run with all rows.
# `repair_store` makes of a damaged store one that reads: what is damaged is left out, and that is told.

_REPAIR = "the same with --repair leaves out what is damaged; add those runs again after it"


@dataclass(slots=True)
class _Seen:
    """What of a store can be read, and what is wrong with the rest."""

    contents: Contents = field(default_factory=Contents)
    changes: int = 0
    bad_changes: list[str] = field(default_factory=list)
    bad_files: dict[str, str] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    """By table."""
    of_run: Counter[str] = field(default_factory=Counter)
    """Rows that each run has in tables other than `runs` and `tags`."""
    promised: dict[str, int] = field(default_factory=dict)
    """What `runs` says of that."""
    run_dirs: dict[str, str] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    in_file: dict[str, set[str]] = field(default_factory=dict)
    """The runs that each file has rows of."""

    @property
    def incomplete(self) -> set[str]:
        """Runs that have not the rows they were added with."""
        named = set(self.promised) | set(self.of_run)
        return self.twice | {one for one in named if self.of_run[one] != self.promised.get(one)}

    @property
    def sound(self) -> bool:
        return not (self.bad_changes or self.bad_files or self.incomplete)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that a repaired store no longer has, and where it lay; empty where that is lost, too."""

    run_id: str
    run_dir: str


@dataclass(frozen=True, slots=True)
class Repaired:
    files_left_out: tuple[str, ...] = ()
    runs_left_out: tuple[LeftOut, ...] = ()
    needed: bool = True
    """Whether anything was damaged."""


def check_store(root: Path, log: Log, progress: Progress | None = None) -> CheckList:
    """Read everything; each line with its cure."""
    return CheckList(tuple(_checks(_look(root, log, progress or Silent()))))


def repair_store(root: Path, log: Log, progress: Progress | None = None) -> Repaired:
    """Leave out changes and files that cannot be read, and the runs that lost rows with them. Nothing is
    removed: what no longer counts goes when it would have gone anyway."""
    while True:
        seen = _look(root, log, progress or Silent())
        if seen.sound:
            return Repaired(needed=False)
        gone = seen.incomplete
        kept: list[DataFile] = []
        for path, found in seen.contents.files.items():
            if path not in seen.bad_files:
                damaged = found.table != "tags" and not gone.isdisjoint(seen.in_file[path])
                whole = rewritten(root, [found], gone) if damaged else found
                kept += [whole] if whole else []
        replaced = (Replaced(*one) for one in seen.contents.replaced.items() if one[1] not in gone)
        change = Change(
            kind="compact",
            made=stamp(),
            kit=__version__,
            files=tuple(kept),
            replaced=tuple(replaced),
            whole=True,
        )
        if log.create(seen.contents.number + 1, change):
            left = tuple(LeftOut(one, seen.run_dirs.get(one, "")) for one in sorted(gone))
            return Repaired(tuple(seen.bad_files), left)


def _checks(seen: _Seen) -> Iterator[Check]:
    runs = len(seen.promised)
    yield check_unless(seen.bad_changes, "log", f"{plural(seen.changes, 'change')} read", _REPAIR)
    count, size = len(seen.contents.files), sum(found.bytes for found in seen.contents.files.values())
    told = f"{plural(count, 'file')}, {size:,} bytes, as they were written"
    yield check_unless([*seen.bad_files.values()], "files", told, _REPAIR)
    wrong = [
        f"run {one} has {plural(seen.of_run[one], 'row')}, not {seen.promised.get(one, 0)}"
        if one not in seen.twice
        else f"run {one} is there twice"
        for one in sorted(seen.incomplete)
    ]
    yield check_unless(wrong, "runs", f"{plural(runs, 'run')}, each with all its rows", _REPAIR)
    yield Check("rows", "pass", ", ".join(f"{name} {seen.rows[name]:,}" for name in TABLES))


def _look(root: Path, log: Log, progress: Progress) -> _Seen:
    seen = _Seen()
    _read_log(log, seen)
    progress.stage("checking files")
    every = list(seen.contents.files.values())
    for place, found in enumerate(every):
        progress.advance(place, len(every), found.table)
        try:
            wrong = _read_file(root, found, seen)
        except ProfilingError as problem:
            wrong = problem.problem
        if wrong:
            seen.bad_files[found.path] = wrong
    return seen


def _read_log(log: Log, seen: _Seen) -> None:
    """Every change that counts and can be read, from the newest that says everything on."""
    numbers = log.numbers()
    newest = numbers[-1] if numbers else 0
    changes: list[tuple[int, Change]] = []
    for number in range(newest, 0, -1):
        path = log.path(number)
        if not is_there(path):
            if number < numbers[0]:
                seen.bad_changes.append(f"{path} and all before it are missing")
                break
            seen.bad_changes.append(f"{path} is missing: what it added is not known")
            continue
        try:
            change = log.read(number)
        except ProfilingError as problem:
            seen.bad_changes.append(problem.problem)
            continue
        changes.append((number, change))
        if change.whole:
            break
    for number, change in reversed(changes):
        seen.contents.take(number, change)
    seen.contents.number, seen.changes = newest, len(changes)


def _read_file(root: Path, found: DataFile, seen: _Seen) -> str:
    """Count its rows; what is wrong with it, where something is."""
    (path,) = checked_paths(root, [found])
    if (told := files.sha256(Path(path))) != found.sha256:
        return f"{path} is damaged: its hash is {told[:12]}..., not that of its name"
    replaced = seen.contents.replaced
    of_run: Counter[str] = Counter()
    runs: list[dict[str, object]] = []
    for batch in batches_in(root, found):
        of_run.update(batch.column("run_id").to_pylist())
        if found.table == "runs":
            runs += batch.select(["run_id", "row_count", "run_dir"]).to_pylist()
    if of_run.total() != found.rows:
        return f"{path} has {plural(of_run.total(), 'row')}, not {found.rows}"
    seen.rows[found.table] += found.rows
    seen.in_file[found.path] = set(of_run)
    if found.table not in ("runs", "tags"):
        seen.of_run.update({one: count for one, count in of_run.items() if one not in replaced})
    for row in runs:
        run_id, count = str(row["run_id"]), row["row_count"]
        if run_id not in replaced:
            seen.twice |= {run_id} & seen.promised.keys()
            seen.promised[run_id] = count if isinstance(count, int) else -1
            seen.run_dirs[run_id] = str(row["run_dir"] or "")
    return ""
