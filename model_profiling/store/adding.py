"""Adding runs to a store: whole or not at all, each once, whoever else adds at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling._version import __version__
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.hints import needed
from model_profiling.core.progress import Progress, Silent
from model_profiling.run import Run
from model_profiling.store.connection import now
from model_profiling.store.data_files import Contents, batch_of, checked_paths, has_ended, stamp, write_table
from model_profiling.store.labels import Labels
from model_profiling.store.log import Change, DataFile, KnownRun, Log
from model_profiling.store.run_rows import Identity, RunRows, identity_of, rows_of_run
from model_profiling.store.tables import RUNS, TABLES, Row

if TYPE_CHECKING:
    import pyarrow

_MOST_RUNS = 256
_MOST_ROWS = 100_000
"""Of one change: what is held in memory until it is written."""

Outcome = Literal["added", "continued", "already there", "an earlier state of one that is there"]


@dataclass(frozen=True, slots=True)
class AddedRun:
    """What became of one run directory."""

    run_dir: Path
    run_id: str
    outcome: Outcome
    supersedes: str = ""
    """The run that it was before it was continued."""
    analysed: bool = False
    """Whether its dumps had to be read, which takes longer than taking its analysis."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A run directory that cannot be added, and why."""

    run_dir: Path
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Added:
    """What `Store.add` did."""

    runs: tuple[AddedRun, ...] = ()
    refused: tuple[Refused, ...] = ()
    files_left_out: tuple[Path, ...] = ()
    """Named beside folders, as by `runs/*`: they are no runs, and nobody misses them."""

    @property
    def new(self) -> tuple[AddedRun, ...]:
        """Those that were not in the store before."""
        return tuple(run for run in self.runs if run.outcome in ("added", "continued"))


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A run that is read, but not yet in the store."""

    place: int
    """Which of the run directories."""
    rows: RunRows
    ended: bool
    batches: dict[str, pyarrow.RecordBatch]

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.tables.values())

    def known(self, supersedes: str = "") -> KnownRun:
        told = self.rows.identity
        return KnownRun(told.run_id, told.begun, told.processes, self.ended, supersedes)


@dataclass(slots=True)
class Adder:
    """Adds runs by the hundred: each change takes as long whether it holds one run or many."""

    root: Path
    log: Log
    contents: Contents
    labels: Labels
    progress: Progress = field(default_factory=Silent)
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    """By their beginning."""
    _done: dict[int, AddedRun] = field(default_factory=dict)
    _refused: list[Refused] = field(default_factory=list)

    def add(self, run_dirs: Sequence[Path]) -> Added:
        self.progress.stage("adding runs")
        for place, run_dir in enumerate(run_dirs):
            self.progress.advance(place, len(run_dirs), run_dir.name)
            try:
                self._read(place, run_dir)
            except (FormatError, InputError) as problem:
                self._refused.append(Refused(run_dir, problem.problem, problem.fix))
            rows = sum(one.count for one in self._waiting.values())
            if len(self._waiting) >= _MOST_RUNS or rows >= _MOST_ROWS:
                self._write()
        self._write()
        self._tag_known()
        return Added(tuple(self._done[place] for place in sorted(self._done)), tuple(self._refused))

    def _read(self, place: int, run_dir: Path) -> None:
        if run_dir.is_file():
            raise InputError(f"{run_dir} is a file", "name the run directory that it is in")
        run = Run.open(run_dir)
        identity = identity_of(run)
        found = self._known(identity.begun)
        mine = KnownRun(identity.run_id, identity.begun, identity.processes, _ended(run))
        if found is not None and (found.run_id == mine.run_id or found.progress > mine.progress):
            self._settle(place, run_dir, identity, found)
            return
        rows = rows_of_run(run, identity, self.labels, self.root)
        where = str(run_dir)
        batches = {name: batch_of(TABLES[name], told, where) for name, told in rows.tables.items() if told}
        earlier = self._waiting.get(identity.begun)
        self._waiting[identity.begun] = _Waiting(place, rows, mine.ended, batches)
        if earlier is not None:
            self._settle(earlier.place, earlier.rows.run_dir, earlier.rows.identity, mine)

    def _known(self, begun: str) -> KnownRun | None:
        waiting = self._waiting.get(begun)
        return waiting.known() if waiting else self.contents.same_beginning(self.root, begun)

    def _settle(self, place: int, run_dir: Path, identity: Identity, found: KnownRun) -> None:
        """`run_dir` has nothing that the store does not have."""
        same = found.run_id == identity.run_id
        outcome: Outcome = "already there" if same else "an earlier state of one that is there"
        self._done[place] = AddedRun(run_dir, found.run_id, outcome)

    def _write(self) -> None:
        """Put what waits into the store. Whoever changes the log in the meantime may have added the same."""
        while self._waiting:
            superseded = {
                begun: found.run_id
                for begun in self._waiting
                if (found := self.contents.same_beginning(self.root, begun)) is not None
            }
            known = tuple(one.known(superseded.get(begun, "")) for begun, one in self._waiting.items())
            written = tuple(self._files(superseded))
            change = Change(kind="add", made=stamp(), kit=__version__, files=written, runs=known)
            if self._make(change):
                for begun, one in self._waiting.items():
                    earlier = superseded.get(begun, "")
                    outcome: Outcome = "continued" if earlier else "added"
                    self._done[one.place] = AddedRun(
                        one.rows.run_dir, one.rows.identity.run_id, outcome, earlier, one.rows.analysed
                    )
                self._waiting.clear()
                return
            for begun, one in list(self._waiting.items()):
                found = self.contents.same_beginning(self.root, begun)
                mine = one.known()
                if found is not None and (found.run_id == mine.run_id or found.progress > mine.progress):
                    del self._waiting[begun]
                    self._settle(one.place, one.rows.run_dir, one.rows.identity, found)

    def _make(self, change: Change) -> bool:
        """Make `change` the next of the log; False where others have added what it adds, too."""
        begun = {run.begun for run in change.runs}
        checked_paths(self.root, change.files)  # a machine that slept for days finds them cleaned away
        while not self.log.create(self.contents.number + 1, change):
            before = {one: self.contents.same_beginning(self.root, one) for one in begun}
            self.contents.catch_up(self.log)
            if any(self.contents.same_beginning(self.root, one) != before[one] for one in begun):
                return False
        self.contents.take(self.contents.number + 1, change)
        return True

    def _files(self, superseded: dict[str, str]) -> Iterator[DataFile]:
        by_month: dict[str, list[_Waiting]] = {}
        for one in self._waiting.values():
            by_month.setdefault(one.rows.month, []).append(one)
        for month, waiting in by_month.items():
            for table in TABLES:
                batches = [one.batches[table] for one in waiting if table in one.batches]
                if table == "runs":
                    batches = [_superseding(one, superseded) for one in waiting]
                if batches:
                    yield write_table(self.root, table, month, _joined(batches))

    def _tag_known(self) -> None:
        """Runs that were there before get the tags as well."""
        known = dict.fromkeys(
            run.run_id for run in self._done.values() if run.outcome not in ("added", "continued")
        )
        if known and self.labels.tags:
            rows = [(run_id, tag, now(), "") for run_id in known for tag in self.labels.tags]
            add_tags(self.root, self.log, self.contents, rows)


def add_tags(root: Path, log: Log, contents: Contents, rows: Sequence[Row]) -> None:
    """Put rows of `tags` into the store."""
    month = stamp()[:7]
    written = write_table(root, "tags", month, [batch_of(TABLES["tags"], rows, "tags")])
    change = Change(kind="tag", made=stamp(), kit=__version__, files=(written,))
    while not log.create(contents.number + 1, change):
        contents.catch_up(log)
    contents.take(contents.number + 1, change)


def _ended(run: Run) -> bool:
    return has_ended((run.manifest.unfinished or "finished") if run.manifest else "")


def _superseding(one: _Waiting, superseded: dict[str, str]) -> pyarrow.RecordBatch:
    """The row of a run, with the run that it replaces."""
    earlier = superseded.get(one.rows.identity.begun)
    if not earlier:
        return one.batches["runs"]
    place = RUNS.names.index("supersedes")
    (row,) = one.rows.tables["runs"]
    return batch_of(RUNS, [(*row[:place], earlier, *row[place + 1 :])], str(one.rows.run_dir))


def _joined(batches: Iterable[pyarrow.RecordBatch]) -> list[pyarrow.RecordBatch]:
    """One batch of many: what is written together is packed together."""
    arrow = needed("pyarrow", "store")
    joined: list[pyarrow.RecordBatch] = arrow.Table.from_batches(list(batches)).combine_chunks().to_batches()
    return joined
