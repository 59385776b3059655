"""What the kit keeps on this machine (cache and runs), and what to remove to make room."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.runner.cache import (
    IN_USE,
    NOT_OURS,
    CacheEntry,
    cache_entries,
    remove_entry,
    remove_whole,
    size_below,
)
from model_profiling.runs.folders import check_free, holds_run, locked, runs_below, runs_in, strangers
from model_profiling.runs.manifest import read_manifest
from model_profiling.targets import TargetChoice, open_target
from model_profiling.targets.remote.folder import Removed
from model_profiling.targets.remote.target import RemoteTarget

RUN = "run"


@dataclass(frozen=True, slots=True)
class Limits:
    """What may stay: at most `keep` bytes in total, nothing unused for longer; None means no limit."""

    keep: int | None = None
    older_than_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Entries, largest first, and those that were removed."""

    kept: tuple[CacheEntry, ...]
    removed: tuple[CacheEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.kept)

    @property
    def removed_bytes(self) -> int:
        return sum(entry.bytes for entry in self.removed)


def trim_cache(limits: Limits, *, dry_run: bool = False) -> Trimmed:
    """Remove entries of the cache until it fits `limits`; a `dry_run` only lists them."""
    return _trim(cache_entries(), limits, dry_run=dry_run)


def trim_runs(folders: Sequence[Path], limits: Limits, *, dry_run: bool = False) -> Trimmed:
    """Remove whole run directories in `folders`, the oldest first, until they fit `limits`."""
    found: dict[Path, CacheEntry] = {}
    for folder in folders:
        runs = [run_dir for run_dir in runs_in(folder) if holds_run(run_dir)] if folder.is_dir() else []
        if not runs:
            raise InputError(f"there is no run in {folder}", "give a run directory or a folder of runs")
        found |= {run_dir.resolve(): _run(run_dir) for run_dir in runs}
    return _trim(found.values(), limits, dry_run=dry_run)


def _trim(found: Iterable[CacheEntry], limits: Limits, *, dry_run: bool) -> Trimmed:
    kept = tuple(sorted(found, key=lambda entry: (-entry.bytes, entry.kind, entry.name)))
    removed = []
    for entry in _chosen(kept, limits, time.time()):
        if dry_run or (_remove_run(entry) if entry.kind == RUN else remove_entry(entry)):
            removed.append(entry)
        else:
            kept = tuple(replace(each, stays=IN_USE) if each is entry else each for each in kept)
    return Trimmed(kept, tuple(removed))


def _chosen(kept: Sequence[CacheEntry], limits: Limits, now: float) -> list[CacheEntry]:
    """Choose all entries that are too old, then the least recently used until the rest fits."""
    ours = [entry for entry in kept if NOT_OURS not in entry.stays]
    free = sorted((entry for entry in ours if not entry.stays), key=lambda entry: (entry.used, -entry.bytes))
    oldest = now - limits.older_than_s if limits.older_than_s is not None else float("-inf")
    chosen = [entry for entry in free if entry.used < oldest]
    left = sum(entry.bytes for entry in ours) - sum(entry.bytes for entry in chosen)
    for entry in free[len(chosen) :]:
        if limits.keep is None or left <= limits.keep:
            break
        chosen.append(entry)
        left -= entry.bytes
    return chosen


def _run(run_dir: Path) -> CacheEntry:
    stamps = [(run_dir / name) for name in (names.MANIFEST, names.JOURNAL)]
    used = max((path.lstat().st_mtime for path in stamps if path.exists()), default=run_dir.stat().st_mtime)
    others = runs_below(run_dir)
    # `.` has no name that it could be removed by.
    path = run_dir if run_dir.name not in ("", "..") else run_dir.resolve()
    return CacheEntry(RUN, str(run_dir), path, size_below(run_dir, others), used, _why_it_stays(path, others))


def _why_it_stays(run_dir: Path, others: Collection[Path]) -> str:
    if run_dir.is_symlink():
        return f"a link, {NOT_OURS}"
    if others:
        return "contains other runs"
    try:
        manifest = read_manifest(run_dir)
    except ProfilingError:
        manifest = None
    if manifest is None:
        return "has no manifest that can be read"
    if (stranger := next(strangers(run_dir, manifest), None)) is not None:
        return f"contains {stranger}, which is {NOT_OURS}"
    try:
        check_free(run_dir)
    except InputError:
        return IN_USE
    return ""


def _remove_run(entry: CacheEntry) -> bool:
    try:
        with locked(entry.path):
            remove_whole(entry.path, ".removed.")
    except InputError:
        return False
    return True


# Removing what the kit has put on a phone or another machine.


def clean(choice: TargetChoice) -> Removed:
    """Remove the kit's folder there, and return what was in it."""
    target = open_target(choice)
    if not isinstance(target, RemoteTarget):
        raise InputError(f"the kit puts nothing on target {choice.kind}", "give android:SERIAL or ssh:HOST")
    try:
        removed = target.clean()
        return replace(removed, notes=target.take_notes())
    finally:
        target.close()
