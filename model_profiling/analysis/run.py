"""The facts of a whole run directory: its dumps, the pairs compared in it, and what to do about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.advice import Finding
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.summary import DumpAnalysis


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """What `analyse` returns."""

    run_dir: Path
    model: Path | None
    etrecord: Path | None
    dumps: tuple[DumpAnalysis, ...]
    """The first of each series: the one that files are written for."""
    series: tuple[SeriesAnalysis, ...]
    """The same with all rounds taken together: the ones that answers come from."""
    pairings: tuple[Pairing, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    """About the directory as a whole; each dump carries its own."""

    def dump(self, experiment: str, threads: int | None = None) -> DumpAnalysis | None:
        for dump in self.dumps:
            if dump.experiment == experiment and threads in (None, dump.threads):
                return dump
        return None
