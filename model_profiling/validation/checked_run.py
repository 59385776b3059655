"""A run directory under examination: everything is read once, when the first check needs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.errors import FormatError, ProfilingError
from model_profiling.json_record import read_json_object
from model_profiling.run import Manifest, Result, Run, Series, Times, names
from model_profiling.run.series import first_of_each

ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """One run directory and what its checks ask of it."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def run(self) -> Run:
        run = Run.open(self.path)
        if run.manifest is not None and not run.manifest.version_0:
            return run
        return Run.open(self.path, times=self._users_word())

    def _users_word(self) -> Times | None:
        """What `--times` said when the dumps were analysed: their files are to say the same."""
        try:
            entries = read_json_object(self.path / names.ANALYSIS, ANALYSE_AGAIN).get("per_etdump")
        except ProfilingError:
            return None  # that it is damaged is another check's to say
        listed = entries if isinstance(entries, list) else []
        said = [entry.get("times") for entry in listed if isinstance(entry, dict)]
        return Times.HARDWARE if Times.HARDWARE.value in said else None

    @property
    def manifest(self) -> Manifest | None:
        return self.run.manifest

    @property
    def promises_little(self) -> bool:
        """Whether nothing but its own names, or the earlier kit, tells what the run is (version 0)."""
        return self.manifest is None or self.manifest.version_0

    @property
    def results(self) -> tuple[Result, ...]:
        return self.run.results

    @cached_property
    def analysis(self) -> RunAnalysis | FormatError | None:
        """The dumps analysed; None where there are none, an error where all are damaged."""
        if not self.run.dumps:
            return None
        try:
            return analyse_run(self.run, self.run.programs())
        except FormatError as problem:
            return problem

    @property
    def damaged(self) -> tuple[FormatError, ...]:
        if isinstance(self.analysis, FormatError):
            return (self.analysis,)
        return self.analysis.damaged if self.analysis else ()

    @cached_property
    def whole_dumps(self) -> list[DumpAnalysis]:
        """Every dump that could be read, all rounds."""
        if self.analysis is None or isinstance(self.analysis, FormatError):
            return []
        return [dump for series in self.analysis.series for dump in series.rounds]

    @property
    def explained(self) -> bool:
        """Whether a program explained the operators."""
        return any(dump.graph is not None for dump in self.whole_dumps)

    def dumps_of(self, result: Result) -> list[DumpAnalysis]:
        return self._by_series.get(result.series, [])

    def dump_at(self, path: Path) -> DumpAnalysis | None:
        """The one in this file."""
        return self._by_place.get(path.resolve())

    @cached_property
    def _by_series(self) -> dict[Series, list[DumpAnalysis]]:
        found: dict[Series, list[DumpAnalysis]] = {}
        for dump in self.whole_dumps:
            found.setdefault(dump.series, []).append(dump)
        return found

    @cached_property
    def _by_place(self) -> dict[Path, DumpAnalysis]:
        return first_of_each((dump.path.resolve(), dump) for dump in self.whole_dumps)
