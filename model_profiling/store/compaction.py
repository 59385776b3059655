"""Many small files become few: adding a run makes one file for each table, and a reader opens them all.

Files of like size are merged, so that a row is written a few times however many runs follow, and one change
of the log says everything. What no longer counts stays for a day: somebody may be reading it.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling import files
from model_profiling.extras import needed
from model_profiling.store.contents import Contents
from model_profiling.store.data_files import FOLDER, batches_in, write_table
from model_profiling.store.log import DataFile, Log
from model_profiling.store.tables import TABLES

if TYPE_CHECKING:
    import pyarrow

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
