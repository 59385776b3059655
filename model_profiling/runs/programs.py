"""Finds the program that explains a dump: the run's own graph, the .pte that was run, or one nearby."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath

from model_profiling.config import names
from model_profiling.config.series import Diagnostic
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.safe_read import inside, is_regular, is_there
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.graph_file import ProgramGraph, read_graph_file, read_undelegated, record_beside
from model_profiling.program.pte import read_program
from model_profiling.program.records import EtRecord
from model_profiling.runner.result import check_program
from model_profiling.runs.manifest import Manifest

_WITHOUT = "the analysis continues without it"


class Programs:
    """Programs and ETRecords, each read once; a damaged one that the user did not name is only a warning."""

    def __init__(
        self,
        run_dir: Path,
        manifest: Manifest | None,
        model: Path | None = None,
        etrecord: Path | None = None,
    ) -> None:
        self._run_dir, self._manifest = run_dir, manifest
        self._model, self._etrecord = model, etrecord
        self._read: dict[Path, ProgramGraph | None] = {}
        self.warnings: list[Diagnostic] = []

    def explaining(self, dump: Path) -> ProgramGraph | None:
        """Return the program that explains the operators of `dump`, if any."""
        # A subfolder of a run that lost its manifest still finds the graph, in itself or in its parent.
        graphs = (folder / names.GRAPH for folder in (self._run_dir, self._run_dir.resolve().parent))
        graph = next((path for path in graphs if is_there(path) and self._etrecord is None), None)
        place = self._model or graph or self.named() or self._near(dump)
        if place is not None and place not in self._read:
            self._read[place] = self._graph(place)
        return self._read[place] if place else None

    def ran(self, graph: ProgramGraph | None) -> bool:
        """Whether the program is proven to be the one that was run."""
        expected = self._manifest.model_sha256 if self._manifest else ""
        return graph is not None and bool(expected) and graph.sha256 == expected

    def named(self) -> Path | None:
        """Return the manifest's program, from the run directory or by its name from an `artifacts` folder.
        Never from the manifest's own path: that may be anybody's file."""
        if self._manifest is None or not self._manifest.model:
            return None
        named = PurePosixPath(self._manifest.model)
        if named.suffix != ".pte":
            return None
        own = "/".join(part for part in named.parts if part not in ("/", ".."))
        places = [parent / "artifacts" / named.name for parent in list(self._run_dir.resolve().parents)[:4]]
        with contextlib.suppress(FormatError):
            places.insert(0, inside(self._run_dir, own))
        return next((place for place in places if is_regular(place)), None)

    def _graph(self, place: Path) -> ProgramGraph | None:
        try:
            if place.name == names.GRAPH:
                return read_graph_file(place)
            check_program(place)  # what is no program is not hashed
            manifest, sha256 = self._manifest, files.sha256(place)
            # One that the user names is taken as it is.
            if self._model is None and manifest and manifest.model_sha256 not in ("", sha256):
                seen = f"{place} is not the program that was run (its SHA-256 differs), so it is not used"
                self.warnings.append(Diagnostic(None, "wrong_program", seen))
                return None
            record = self._etrecord or record_beside(place)
            etrecord, left = self._record(record) if record else None, read_undelegated(place, sha256)
            return ProgramGraph(read_program(place), etrecord, sha256, undelegated=left)
        except (FormatError, InputError) as problem:
            if self._model is not None:
                raise
            self.warnings.append(Diagnostic(None, "damaged_program", problem.problem, _WITHOUT))
            return None

    def _record(self, place: Path) -> EtRecord | None:
        try:
            return read_etrecord(place)
        except (FormatError, InputError) as problem:
            if self._etrecord is not None:
                raise
            self.warnings.append(Diagnostic(None, "damaged_program", problem.problem, _WITHOUT))
            return None

    def _near(self, dump: Path) -> Path | None:
        """Return the .pte whose name begins the dump's name: beside the dump, above it or in `artifacts`. A
        single program in the dump's own folder is taken whatever its name."""
        parents = list(dump.resolve().parents)
        folders = (*parents[:2], *(parent / "artifacts" for parent in parents[:5]))
        for folder in folders:
            programs = sorted(filter(is_regular, folder.glob("*.pte")))
            fitting = [program for program in programs if dump.name.startswith(program.stem)]
            if fitting:
                return max(fitting, key=lambda program: len(program.stem))
            if len(programs) == 1 and folder == parents[0]:
                return programs[0]
        return None
