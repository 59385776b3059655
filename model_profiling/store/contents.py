"""What a store holds after all changes of its log: the files that count and the runs in them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling import __version__
from model_profiling.store.data_files import batches_in
from model_profiling.store.log import Change, DataFile, KnownRun, Log, Replaced

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
            self._runs, self._by_beginning, self._unread = {}, {}, self.of_table("runs")
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
            for batch in batches_in(root, one, ("run_id", "begun", "processes", "state")):
                columns = (column.to_pylist() for column in batch.columns)
                for run_id, begun, processes, state in zip(*columns, strict=True):
                    if run_id and begun and run_id not in self.replaced and run_id not in self._runs:
                        known = KnownRun(run_id, begun, processes or 0, has_ended(state or ""))
                        self._runs[run_id] = known
                        self._by_beginning.setdefault(begun, run_id)
        self._unread = []
        return self._runs

    def same_beginning(self, root: Path, begun: str) -> KnownRun | None:
        """What a run has been before, or has become since."""
        return self.runs(root).get(self._by_beginning.get(begun, ""))

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
