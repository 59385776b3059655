"""What a store holds after all changes of its log: the files that count and the runs in them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from model_profiling import __version__
from model_profiling.store.log import Change, DataFile, KnownRun, Replaced


@dataclass(slots=True)
class Contents:
    """Up to change `number`."""

    number: int = 0
    files: dict[str, DataFile] = field(default_factory=dict)
    runs: dict[str, KnownRun] = field(default_factory=dict)
    """Those that count, by run_id."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The runs that were continued, and which run each has become in the end."""
    unmerged: int = 0
    """How many changes were made since the last compacting."""
    _by_beginning: dict[str, str] = field(default_factory=dict)

    def take(self, number: int, change: Change) -> None:
        if change.whole:
            self.files, self.runs, self.replaced = {}, {}, {}
            self._by_beginning, self.unmerged = {}, 0
            self.replaced = {one.run_id: one.by for one in change.replaced}
        else:
            self.unmerged += 1
        self.number = number
        self.files.update((found.path, found) for found in change.files)
        for name in change.removed:
            self.files.pop(name, None)
        for run in change.runs:
            self._take_run(run)

    def _take_run(self, run: KnownRun) -> None:
        if run.supersedes:
            self.runs.pop(run.supersedes, None)
            self.replaced[run.supersedes] = run.run_id
            for earlier, by in self.replaced.items():
                if by == run.supersedes:
                    self.replaced[earlier] = run.run_id
        self.runs[run.run_id] = run
        self._by_beginning[run.begun] = run.run_id

    def same_beginning(self, begun: str) -> KnownRun | None:
        """What a run has been before, or has become since."""
        return self.runs.get(self._by_beginning.get(begun, ""))

    def of_table(self, table: str) -> list[DataFile]:
        return [found for found in self.files.values() if found.table == table]

    def as_change(self, removed: Iterable[str]) -> Change:
        """All of it in one."""
        return Change(
            kind="compact",
            made=stamp(),
            kit=__version__,
            files=tuple(self.files.values()),
            runs=tuple(self.runs.values()),
            removed=tuple(removed),
            replaced=tuple(Replaced(*one) for one in self.replaced.items()),
            whole=True,
        )


def stamp() -> str:
    """This moment, for people who read the log."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
