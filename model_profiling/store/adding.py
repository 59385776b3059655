"""Adds runs to a store: completely or not at all, each once, even if others add at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.hints import needed
from model_profiling.core.progress import Progress, Silent
from model_profiling.run import Run
from model_profiling.store.connection import moment_of, month_of, now
from model_profiling.store.data_files import batch_of, batches_in, merged, without_runs, write_table
from model_profiling.store.index import DataFile, Index, lock, read_index, write_index
from model_profiling.store.labels import Labels
from model_profiling.store.maintenance import merge_alike
from model_profiling.store.run_rows import RunRows, identity_of, rows_of_run
from model_profiling.store.tables import RUNS, TABLES, Row

if TYPE_CHECKING:
    import pyarrow

_MOST_RUNS = 256
_MOST_ROWS = 100_000
"""Limits of one change, which is held in memory until it is written."""
_ENDED = ("finished", "failed", "")
"""States of a run that will not be continued; empty if it has no manifest."""

Outcome = Literal["added", "continued", "already there", "an earlier state of one that is there"]


@dataclass(frozen=True, slots=True)
class AddedRun:
    run_dir: Path
    run_id: str
    outcome: Outcome
    supersedes: str = ""
    """Its run_id before it was continued."""
    analysed: bool = False
    """Whether its dumps had to be read, which takes longer than reading its analysis."""


@dataclass(frozen=True, slots=True)
class Refused:
    run_dir: Path
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Added:
    runs: tuple[AddedRun, ...] = ()
    refused: tuple[Refused, ...] = ()
    files_left_out: tuple[Path, ...] = ()
    """Named beside folders, as by `runs/*`."""

    @property
    def new(self) -> tuple[AddedRun, ...]:
        return tuple(run for run in self.runs if run.outcome in ("added", "continued"))


@dataclass(frozen=True, slots=True)
class _KnownRun:
    run_id: str
    begun: str
    processes: int
    ended: bool

    def covers(self, other: _KnownRun) -> bool:
        """Whether `other`, with the same beginning, has nothing that this one lacks."""
        return self.run_id == other.run_id or (self.processes, self.ended) > (other.processes, other.ended)


@dataclass(frozen=True, slots=True)
class _ReadRun:
    place: int
    """Its position among the run directories."""
    known: _KnownRun
    month: str
    """The month in which it began; empty if unknown."""
    rows: RunRows
    batches: Mapping[str, pyarrow.RecordBatch]

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.tables.values())


@dataclass(slots=True)
class Adder:
    """Adds runs by the hundred: a change takes as long for one run as for many."""

    root: Path
    labels: Labels
    progress: Progress = field(default_factory=Silent)
    _index: Index = field(default_factory=Index)
    _stored: dict[str, _KnownRun] = field(default_factory=dict)
    """Runs of the store by their beginning, from the files in `_loaded`."""
    _loaded: set[DataFile] = field(default_factory=set)
    _waiting: dict[str, _ReadRun] = field(default_factory=dict)
    """By their beginning."""
    _done: dict[int, AddedRun] = field(default_factory=dict)

    def add(self, run_dirs: Sequence[Path]) -> Added:
        refused: list[Refused] = []
        self._catch_up()
        self.progress.stage("adding runs")
        for place, run_dir in enumerate(run_dirs):
            self.progress.advance(place, len(run_dirs), run_dir.name)
            try:
                self._read(place, run_dir)
            except (FormatError, InputError) as problem:
                refused.append(Refused(run_dir, problem.problem, problem.fix))
            rows = sum(one.count for one in self._waiting.values())
            if len(self._waiting) >= _MOST_RUNS or rows >= _MOST_ROWS:
                self._write()
        if self._waiting:
            self._write()
        self._tag_known()
        return Added(tuple(self._done[place] for place in sorted(self._done)), tuple(refused))

    def _catch_up(self) -> None:
        index = read_index(self.root)
        if index != self._index:
            self._index = index
            self._stored.clear()
            self._loaded.clear()

    def _known(self, begun: str, month: str) -> _KnownRun | None:
        """The stored run with this beginning; all its states are in files of the month it began in."""
        for found in self._index.of_table("runs"):
            if found not in self._loaded and found.folder.endswith(month):
                self._loaded.add(found)
                self._stored.update(_runs_in(self.root, found))
        return self._stored.get(begun)

    def _read(self, place: int, run_dir: Path) -> None:
        if run_dir.is_file():
            raise InputError(f"{run_dir} is a file", "name the run directory that it is in")
        run = Run.open(run_dir)
        identity = identity_of(run)
        begun, state = identity.begun, (run.manifest.unfinished or "finished") if run.manifest else ""
        mine = _KnownRun(identity.run_id, begun, identity.processes, state in _ENDED)
        earlier = self._waiting.get(begun)
        measured = moment_of(run.manifest.started) if run.manifest else None
        month = "" if measured is None else month_of(measured)
        found = earlier.known if earlier else self._known(begun, month)
        if found is not None and found.covers(mine):
            self._settle(place, run_dir, mine, found)
            return
        rows = rows_of_run(run, identity, self.labels, self.root)
        where = str(run_dir)
        batches = {name: batch_of(TABLES[name], told, where) for name, told in rows.tables.items() if told}
        self._waiting[begun] = _ReadRun(place, mine, month, rows, batches)
        if earlier is not None:
            self._settle(earlier.place, earlier.rows.run_dir, earlier.known, mine)

    def _settle(self, place: int, run_dir: Path, mine: _KnownRun, found: _KnownRun) -> None:
        """Record that the store already has everything of `run_dir`."""
        same = found.run_id == mine.run_id
        outcome: Outcome = "already there" if same else "an earlier state of one that is there"
        self._done[place] = AddedRun(run_dir, found.run_id, outcome)

    def _write(self) -> None:
        """Write the waiting runs to the store, except those that others have added meanwhile."""
        with lock(self.root):
            self._catch_up()
            superseded: dict[str, str] = {}
            for begun, one in list(self._waiting.items()):
                found = self._known(begun, one.month)
                if found is not None and found.covers(one.known):
                    del self._waiting[begun]
                    self._settle(one.place, one.rows.run_dir, one.known, found)
                elif found is not None:
                    superseded[begun] = found.run_id
            became = {earlier: self._waiting[begun].known.run_id for begun, earlier in superseded.items()}
            kept = _continued(self.root, self._index, became) if became else self._index
            new = kept.changed((), self._files(superseded))
            new = merge_alike(self.root, new)
            write_index(self.root, self._index, new)
        for begun, one in self._waiting.items():
            earlier = superseded.get(begun, "")
            outcome: Outcome = "continued" if earlier else "added"
            self._done[one.place] = AddedRun(
                one.rows.run_dir, one.known.run_id, outcome, earlier, one.rows.analysed
            )
        self._waiting.clear()

    def _files(self, superseded: Mapping[str, str]) -> Iterator[DataFile]:
        by_month: dict[str, list[_ReadRun]] = {}
        for one in self._waiting.values():
            by_month.setdefault(one.rows.month, []).append(one)
        for month, waiting in by_month.items():
            for table in TABLES:
                batches = [one.batches[table] for one in waiting if table in one.batches]
                if table == "runs":
                    batches = [_superseding(one, superseded) for one in waiting]
                if batches:
                    yield write_table(self.root, table, month, batches)

    def _tag_known(self) -> None:
        """Give the tags to runs that were in the store before, too."""
        known = dict.fromkeys(
            run.run_id for run in self._done.values() if run.outcome not in ("added", "continued")
        )
        if known and self.labels.tags:
            add_tags(self.root, [(run_id, tag, now(), "") for run_id in known for tag in self.labels.tags])


def add_tags(root: Path, rows: Sequence[Row]) -> None:
    batch = batch_of(TABLES["tags"], rows, "tags")
    with lock(root):
        index = read_index(root)
        new = index.changed((), [write_table(root, "tags", month_of(now()), [batch])])
        write_index(root, index, merge_alike(root, new))


def _runs_in(root: Path, found: DataFile) -> Iterator[tuple[str, _KnownRun]]:
    for batch in batches_in(root, found, ("run_id", "begun", "processes", "state")):
        columns = (column.to_pylist() for column in batch.columns)
        for run_id, begun, processes, state in zip(*columns, strict=True):
            yield begun, _KnownRun(run_id, begun, processes or 0, (state or "") in _ENDED)


def _continued(root: Path, index: Index, became: Mapping[str, str]) -> Index:
    """Return `index` without the rows of runs that were continued; their tags move to the new run_id."""
    arrow = needed("pyarrow", "store")

    def moved(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        ids = [became.get(run_id, run_id) for run_id in batch.column("run_id").to_pylist()]
        return arrow.record_batch([arrow.array(ids, arrow.string()), *batch.columns[1:]], batch.schema)

    kept = []
    for found in index.files:
        tags = found.table == "tags"
        kept += merged(root, [found], moved) if tags else without_runs(root, found, list(became))
    return index.changed(index.files, kept)


def _superseding(one: _ReadRun, superseded: Mapping[str, str]) -> pyarrow.RecordBatch:
    """The row of a run, with the run that it replaces."""
    earlier = superseded.get(one.known.begun)
    if not earlier:
        return one.batches["runs"]
    place = RUNS.names.index("supersedes")
    (row,) = one.rows.tables["runs"]
    return batch_of(RUNS, [(*row[:place], earlier, *row[place + 1 :])], str(one.rows.run_dir))
