"""What a store holds after all changes of its log: the files that count and the runs in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling import __version__
from model_profiling.extras import needed
from model_profiling.store.data_files import batches_in
from model_profiling.store.log import Change, DataFile, KnownRun, Log, Replaced

_KNOWN = ("run_id", "begun", "processes", "state")
_FEW = 100
"""Questions for one run, before all are taken in."""
_ENDED = ("finished", "failed", "")
"""States of a run that is not continued; empty is one without a manifest."""


@dataclass(slots=True)
class Contents:
    """Up to change `number`."""

    number: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    """The runs that were continued, and which run each has become in the end."""
    unmerged: int = 0
    """How many changes were made since the last that says everything."""
    _runs: dict[str, KnownRun] = field(default_factory=dict)
    _by_beginning: dict[str, str] = field(default_factory=dict)
    _unread: list[DataFile] = field(default_factory=list)
    """Of `runs`: readers need not know who is in there."""
    _columns: Any = None
    """What of those was read, as a table of Arrow's."""
    _looked_up: int = 0

    def catch_up(self, log: Log) -> None:
        """Take in what was done since, by whomever."""
        for number, change in log.since(self.number):
            self.take(number, change)

    def take(self, number: int, change: Change) -> None:
        self.number = number
        if change.whole:
            self.unmerged = 0
            self.files = {found.path: found for found in change.files}
            self.replaced = {one.run_id: one.by for one in change.replaced}
            self._runs, self._by_beginning, self._columns, self._looked_up = {}, {}, None, 0
            self._unread = self.of_table("runs")
            return
        self.unmerged += 1
        self.files.update((found.path, found) for found in change.files)
        for run in change.runs:
            self._take_run(run)

    def _take_run(self, run: KnownRun) -> None:
        if run.supersedes:
            self._runs.pop(run.supersedes, None)
            self.replaced[run.supersedes] = run.run_id
            for earlier, by in self.replaced.items():
                if by == run.supersedes:
                    self.replaced[earlier] = run.run_id
        self._runs[run.run_id] = run
        self._by_beginning[run.begun] = run.run_id

    def runs(self, root: Path) -> Mapping[str, KnownRun]:
        """Those that count, by run_id; `root` is where the store is."""
        for one in self._unread:
            for batch in batches_in(root, one, _KNOWN):
                columns = (column.to_pylist() for column in batch.columns)
                for told in zip(*columns, strict=True):
                    self._take_row(*told)
        self._unread, self._columns = [], None
        return self._runs

    def _take_row(
        self, run_id: str | None, begun: str | None, processes: int | None, state: str | None
    ) -> None:
        if run_id and begun and run_id not in self.replaced and run_id not in self._runs:
            self._runs[run_id] = KnownRun(run_id, begun, processes or 0, has_ended(state or ""))
            self._by_beginning.setdefault(begun, run_id)

    def same_beginning(self, root: Path, begun: str) -> KnownRun | None:
        """What a run has been before, or has become since."""
        if self._unread and begun not in self._by_beginning:
            self._looked_up += 1
            if self._looked_up > _FEW:
                self.runs(root)
            else:
                self._look_up(root, begun)
        return self._runs.get(self._by_beginning.get(begun, ""))

    def _look_up(self, root: Path, begun: str) -> None:
        """In files whose runs are not known yet. Their columns are scanned and no run becomes an object of
        Python's, so that one more costs hardly more in a large store."""
        arrow, compute = needed("pyarrow", "store"), needed("pyarrow.compute", "store")
        if self._columns is None:
            read = [batch for one in self._unread for batch in batches_in(root, one, _KNOWN)]
            self._columns = arrow.Table.from_batches(read).combine_chunks() if read else None
        if (table := self._columns) is not None:
            for row in table.filter(compute.equal(table.column("begun"), begun)).to_pylist():
                self._take_row(**row)

    def of_table(self, table: str) -> list[DataFile]:
        return [found for found in self.files.values() if found.table == table]

    def compacted(self, gone: Iterable[str], merged: Iterable[DataFile]) -> Change:
        """All of it in one change, with `merged` in place of what is `gone`."""
        left = set(gone)
        kept = (found for found in self.files.values() if found.path not in left)
        return Change(
            kind="compact",
            made=stamp(),
            kit=__version__,
            files=(*kept, *merged),
            replaced=tuple(Replaced(*one) for one in self.replaced.items()),
            whole=True,
        )


def has_ended(state: str) -> bool:
    """Whether a run in `state` is one that is not continued."""
    return state in _ENDED


def stamp() -> str:
    """This moment, for people who read the log."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
