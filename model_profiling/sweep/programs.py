"""The programs of a sweep: each is exported once, by whichever worker has time, or taken as it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_profiling import files
from model_profiling.errors import InputError, ProfilingError
from model_profiling.export.reading import read_export
from model_profiling.models import registry
from model_profiling.sweep.exporting import Exporters
from model_profiling.sweep.records import Program
from model_profiling.sweep.transfer import Hashes, Listing
from model_profiling.workflow.programs import current_export

_BESIDE = (".etrecord", ".json")


@dataclass(frozen=True, slots=True)
class ReadyProgram:
    """A program that can be sent: where it lies, and what lies beside it."""

    path: Path
    files: Listing


@dataclass(slots=True)
class Programs:
    """Which programs there are, and where the rest is made."""

    artifacts: Path
    hashes: Hashes
    resume: bool
    ready: dict[Program, ReadyProgram] = field(default_factory=dict)
    failed: dict[Program, ProfilingError] = field(default_factory=dict)
    under_way: dict[Any, Program] = field(default_factory=dict)
    """By Dask's future, or by one of this process."""
    _exporters: Exporters = field(default_factory=Exporters)
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self._exporters.count, "export")

    def settled(self, program: Program) -> bool:
        return program in self.ready or program in self.failed

    @property
    def exported(self) -> tuple[int, int] | None:
        """How many there are of how many that are wanted; None once all are settled."""
        settled = len({*self.ready, *self.failed})
        return (settled, settled + len(self.under_way)) if self.under_way else None

    def find(self, program: Program) -> bool:
        """Whether it needs no export: it is one, or was exported before and would come out the same."""
        try:
            if program.exported:
                path = Path(program.model)
                if not path.is_file():
                    raise InputError(f"there is no program {path}", "correct the path in the sweep")
                self.add(program, path)
            elif found := self._earlier(program):
                self.add(program, found)
        except ProfilingError as problem:
            self.failed[program] = problem
        return self.settled(program)

    def _earlier(self, program: Program) -> Path | None:
        """A sweep that is continued goes on with the programs it has."""
        path = self.artifacts / f"{program.name}.pte"
        if self.resume and path.is_file():
            try:
                whole = files.sha256(path) == read_export(path).sha256
            except ProfilingError:
                whole = False
            return path if whole else None
        return current_export(program.model, program.dtype, program.backend, self.artifacts)

    def add(self, program: Program, path: Path) -> None:
        beside = [path, *(found for end in _BESIDE if (found := Path(f"{path}{end}")).is_file())]
        self.ready[program] = ReadyProgram(path, {each.name: self.hashes.of(each) for each in beside})

    def export_here(self, program: Program, wake: Callable[[Any], None]) -> None:
        """Export in a process of this one: what a model of the user's own imports is not known elsewhere."""
        future = self._pool.submit(self._exporters.export, program, self.artifacts)
        self.under_way[future] = program
        future.add_done_callback(wake)

    def rest(self) -> None:
        self._exporters.close()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._exporters.close()


def exports_anywhere(program: Program) -> bool:
    """Whether any machine with the kit makes the same of it: a model of the kit's own, from no file."""
    chosen = registry.choose(program.model)
    if chosen is None:
        return False
    return not chosen.files and registry.discover()[chosen.model].source in ("kit", "executorch")
