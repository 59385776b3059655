"""A run directory under examination: every file is read once, when the first check needs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from model_profiling.analysis.sources import ProgramView
from model_profiling.analysis.summary import DumpAnalysis, DumpContext, analyse_dump
from model_profiling.errors import FormatError
from model_profiling.etdump import read_etdump
from model_profiling.program import EtRecord, Program, read_etrecord, read_program
from model_profiling.report.data import Series
from model_profiling.workflow.dumps import find_dumps
from model_profiling.workflow.run_files import Manifest, ResultEntry, read_manifest_file

MEASURE_AGAIN = "measure again with --force, or another output_root"
COMPUTE_AGAIN = "compute it again: sme2prof run CONFIG --analysis-only"
ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """One run directory; every file is read once, when the first question needs it."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def manifest(self) -> Manifest | None:
        return read_manifest_file(self.path)

    @property
    def results(self) -> tuple[ResultEntry, ...]:
        return self.manifest.results if self.manifest else ()

    @property
    def timed(self) -> bool:
        return self.manifest is None or self.manifest.target.timings_are_latency

    @cached_property
    def program_path(self) -> Path | None:
        """The .pte that was run: where it was, or moved along with the run directory."""
        if self.manifest is None or not self.manifest.model:
            return None
        named = Path(self.manifest.model)
        moved = [parent / "artifacts" / named.name for parent in list(self.path.resolve().parents)[:3]]
        return next((one for one in (named, *moved) if one.is_file()), None)

    @cached_property
    def _explained_by(self) -> tuple[Program | None, EtRecord | None]:
        """The program and its record; a damaged one explains nothing, which its checksum tells."""
        if self.program_path is None:
            return None, None
        record = Path(f"{self.program_path}.etrecord")
        try:
            return read_program(self.program_path), read_etrecord(record) if record.is_file() else None
        except FormatError:
            return None, None

    @cached_property
    def contexts(self) -> dict[Path, DumpContext]:
        if next(self.path.rglob("*.etdump"), None) is None:
            return {}
        return {context.etdump.resolve(): context for context in find_dumps(self.path).dumps}

    @cached_property
    def dumps(self) -> dict[Path, DumpAnalysis | FormatError]:
        """Every dump analysed, or why it cannot be."""
        found: dict[Path, DumpAnalysis | FormatError] = {}
        for path, context in self.contexts.items():
            try:
                found[path] = analyse_dump(
                    read_etdump(context.etdump), context, ProgramView(*self._explained_by)
                )
            except FormatError as problem:
                found[path] = problem
        return found

    @property
    def whole_dumps(self) -> dict[Path, DumpAnalysis]:
        return {path: dump for path, dump in self.dumps.items() if not isinstance(dump, FormatError)}

    def dumps_of(self, result: ResultEntry) -> list[DumpAnalysis]:
        paths = [(self.path / name).resolve() for name in result.dumps]
        return [self.whole_dumps[path] for path in paths if path in self.whole_dumps]


def named(result: ResultEntry) -> str:
    return str(Series(result.experiment, result.threads))
