"""Whether a store is what it says: every change there, every file as it was written, every run with all rows.

`repair_store` makes of a damaged store one that reads: what is damaged is left out, and that is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling import __version__, files
from model_profiling.check import Check, CheckList, check_unless
from model_profiling.errors import ProfilingError
from model_profiling.progress import Progress, Silent
from model_profiling.reading import is_there
from model_profiling.store.compaction import rewritten
from model_profiling.store.contents import Contents, stamp
from model_profiling.store.data_files import batches_in, checked_paths
from model_profiling.store.log import Change, DataFile, Log, Replaced
from model_profiling.store.tables import TABLES
from model_profiling.wording import plural

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
