"""A run directory under examination: everything is read once, when the first check needs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.errors import FormatError
from model_profiling.run import Manifest, Result, Run

ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """One run directory and what its checks ask of it."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def run(self) -> Run:
        return Run.open(self.path)

    @property
    def manifest(self) -> Manifest | None:
        return self.run.manifest

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

    @property
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
        return [dump for dump in self.whole_dumps if dump.series == result.series]
