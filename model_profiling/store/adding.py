"""Adds runs to a store: completely or not at all, each once, even if others add at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.progress import Progress
from model_profiling.run import Run
from model_profiling.store import data_files
from model_profiling.store.connection import moment_of, month_of, now
from model_profiling.store.data_files import DataFile, Index
from model_profiling.store.maintenance import merge_alike
from model_profiling.store.run_rows import ENDED, Identity, Labels, identity_of, rows_of_run
from model_profiling.store.tables import TABLES, Row

if TYPE_CHECKING:
    import pyarrow

_MOST_RUNS = 256
_MOST_ROWS = 100_000
"""Limits of one change, which is held in memory until it is written."""

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
class _ReadRun:
    place: int
    """Its position among the run directories."""
    run_dir: Path
    identity: Identity
    month: str
    """The month in which it began; empty if unknown."""
    batches: Mapping[str, pyarrow.RecordBatch]
    analysed: bool


@dataclass(slots=True)
class Adder:
    """Adds runs by the hundred: a change takes as long for one run as for many."""

    root: Path
    labels: Labels
    progress: Progress
    _index: Index = field(default_factory=Index)
    _stored: dict[str, Identity] = field(default_factory=dict)
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
            rows = sum(batch.num_rows for one in self._waiting.values() for batch in one.batches.values())
            if len(self._waiting) >= _MOST_RUNS or rows >= _MOST_ROWS:
                self._write()
        if self._waiting:
            self._write()
        # Runs that were in the store before get the tags, too.
        added = Added(tuple(self._done[place] for place in sorted(self._done)), tuple(refused))
        known = dict.fromkeys(run.run_id for run in added.runs if run not in added.new)
        if known and self.labels.tags:
            add_tags(self.root, [(run_id, tag, now(), "") for run_id in known for tag in self.labels.tags])
        return added

    def _catch_up(self) -> None:
        index = data_files.read_index(self.root)
        if index != self._index:
            self._index = index
            self._stored.clear()
            self._loaded.clear()

    def _known(self, begun: str, month: str) -> Identity | None:
        """The stored run with this beginning; all its states are in files of the month it began in."""
        for found in self._index.of_table("runs"):
            if found not in self._loaded and found.folder.endswith(month):
                self._loaded.add(found)
                for batch in data_files.batches_in(
                    self.root, found, ("run_id", "begun", "processes", "state")
                ):
                    for run_id, its, processes, state in zip(*batch.to_pydict().values(), strict=True):
                        self._stored[its] = Identity(run_id, its, processes or 0, (state or "") in ENDED)
        return self._stored.get(begun)

    def _read(self, place: int, run_dir: Path) -> None:
        if run_dir.is_file():
            raise InputError(f"{run_dir} is a file", "give its run directory")
        run = Run.open(run_dir)
        mine = identity_of(run)
        earlier = self._waiting.get(mine.begun)
        measured = moment_of(run.manifest.started) if run.manifest else None
        month = "" if measured is None else month_of(measured)
        found = earlier.identity if earlier else self._known(mine.begun, month)
        if found is not None and found.covers(mine):
            self._settle(place, run_dir, mine, found)
            return
        rows, analysed = rows_of_run(run, mine, self.labels, self.root)
        batches = {
            name: data_files.batch_of(TABLES[name], told, str(run_dir)) for name, told in rows.items() if told
        }
        self._waiting[mine.begun] = _ReadRun(place, run.path, mine, month, batches, analysed)
        if earlier is not None:
            self._settle(earlier.place, earlier.run_dir, earlier.identity, mine)

    def _settle(self, place: int, run_dir: Path, mine: Identity, found: Identity) -> None:
        """Record that the store already has everything of `run_dir`."""
        same = found.run_id == mine.run_id
        outcome: Outcome = "already there" if same else "an earlier state of one that is there"
        self._done[place] = AddedRun(run_dir, found.run_id, outcome)

    def _write(self) -> None:
        """Write the waiting runs to the store, except those that others have added meanwhile."""
        with data_files.lock(self.root):
            self._catch_up()
            superseded: dict[str, str] = {}
            for begun, one in list(self._waiting.items()):
                found = self._known(begun, one.month)
                if found is not None and found.covers(one.identity):
                    del self._waiting[begun]
                    self._settle(one.place, one.run_dir, one.identity, found)
                elif found is not None:
                    superseded[begun] = found.run_id
            became = {earlier: self._waiting[begun].identity.run_id for begun, earlier in superseded.items()}
            kept = _continued(self.root, self._index, became) if became else self._index
            new = kept.changed((), self._files(superseded))
            data_files.write_index(self.root, self._index, merge_alike(self.root, new))
        for begun, one in self._waiting.items():
            earlier = superseded.get(begun, "")
            self._done[one.place] = AddedRun(
                one.run_dir, one.identity.run_id, "continued" if earlier else "added", earlier, one.analysed
            )
        self._waiting.clear()

    def _files(self, superseded: Mapping[str, str]) -> Iterator[DataFile]:
        together: dict[tuple[str, str], list[pyarrow.RecordBatch]] = {}
        for begun, one in self._waiting.items():
            row = data_files.with_texts(one.batches["runs"], "supersedes", [superseded.get(begun, "")])
            for table, batch in {**one.batches, "runs": row}.items():
                together.setdefault((table, one.month or month_of(now())), []).append(batch)
        for (table, month), batches in together.items():
            yield data_files.write_table(self.root, table, month, batches)


def add_tags(root: Path, rows: Sequence[Row]) -> None:
    batch = data_files.batch_of(TABLES["tags"], rows, "tags")
    with data_files.lock(root):
        index = data_files.read_index(root)
        new = index.changed((), [data_files.write_table(root, "tags", month_of(now()), [batch])])
        data_files.write_index(root, index, merge_alike(root, new))


def _continued(root: Path, index: Index, became: Mapping[str, str]) -> Index:
    """Return `index` without the rows of runs that were continued; their tags move to the new run_id."""

    def moved(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        ids = batch.column("run_id").to_pylist()
        return data_files.with_texts(batch, "run_id", [became.get(run_id, run_id) for run_id in ids])

    kept = []
    for found in index.files:
        tags = found.table == "tags"
        kept += (
            data_files.merged(root, [found], moved)
            if tags
            else data_files.without_runs(root, found, list(became))
        )
    return index.changed(index.files, kept)
