"""Finding, checking and locking run directories, and finding the program that explains a dump."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from model_profiling.config import names
from model_profiling.config.series import Diagnostic
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError
from model_profiling.core.files import LockFile
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import inside, is_regular, is_there
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.graph_file import ProgramGraph, read_graph_file, read_undelegated, record_beside
from model_profiling.program.pte import read_program
from model_profiling.program.records import EtRecord
from model_profiling.runner.result import check_program
from model_profiling.runs.manifest import Manifest
from model_profiling.runs.version_0 import is_summary_0


def holds_run(folder: Path) -> bool:
    """Whether `folder` has a manifest or an earlier kit's summary."""
    return is_there(folder / names.MANIFEST) or any(map(_is_summary, folder.glob(f"*{names.SUMMARY}")))


def runs_below(folder: Path) -> set[Path]:
    """Return the run directories inside `folder`, without itself. Hidden folders are skipped, one may be a
    whole Python environment, and those that are too deep."""
    runs = set()
    for place, subfolders, held in os.walk(folder):
        deep = len(Path(place).relative_to(folder).parts) >= _DEEPEST
        subfolders[:] = [name for name in subfolders if not (deep or name.startswith("."))]
        summaries = (Path(place, name) for name in held if name.endswith(names.SUMMARY))
        if names.MANIFEST in held or any(map(_is_summary, summaries)):
            runs.add(Path(place))
    return runs - {folder}


def runs_in(folder: Path) -> tuple[Path, ...]:
    """Return the run directories in `folder`, sorted; only itself if it is a run or contains none."""
    if holds_run(folder):
        return (folder,)
    return tuple(sorted(runs_below(folder))) or (folder,)


def only_run_in(folder: Path) -> Path:
    """Return the one run directory in `folder`; itself if there are none or several."""
    runs = runs_in(folder)
    return runs[0] if len(runs) == 1 else folder


def expand_runs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return every run in `folders` once, in the given order."""
    every = (run_dir for folder in folders for run_dir in runs_in(folder))
    return tuple({run_dir.resolve(): run_dir for run_dir in every}.values())


_DEEPEST = 64
"""Folders in each other; a run has three. Python walks a thousand at most."""


def no_run(named: Path) -> InputError:
    """The error where no run is. It suggests the most similar path of a run in the folder `out_...` that is
    named (also if that is one folder below this one), or else in this folder, two levels deep."""
    depth = next((n for n, part in enumerate(named.parts, 1) if part.startswith("out_")), 0)
    out = Path(*named.parts[:depth])
    homes = [out / "runs", *Path().glob(f"[!.]*/{glob.escape(out.name)}/runs")] if depth else [Path()]
    manifests = (
        path for home in homes for deep in ("*", "*/*") for path in home.glob(f"{deep}/{names.MANIFEST}")
    )
    near = get_close_matches(str(named), (str(path.parent) for path in manifests), n=1, cutoff=0.35)
    cure = f"did you mean {near[0]}?" if near else "use a folder written by sme2prof profile or run"
    return InputError(f"there is no run directory {named}", cure)


def refuse_links_out(run_dir: Path) -> None:
    """Refuse a run directory with a link to a folder outside: files would be read and written there. Links in
    place of files are refused when they are opened. Hidden folders are not read, only too deep ones named."""
    home = run_dir.resolve()
    for place, subfolders, _ in os.walk(run_dir):
        inside = Path(place).relative_to(run_dir).parts
        if len(inside) > _DEEPEST:
            raise FormatError(f"{run_dir} has folders {_DEEPEST} deep in each other", "remove them")
        for name in subfolders:
            path = Path(place, name)
            hidden = any(part.startswith(".") for part in (*inside, name))
            if not hidden and path.is_symlink() and not path.resolve().is_relative_to(home):
                raise FormatError(
                    f"{path} is a link to a folder outside the run directory",
                    "copy the folder there, or remove the link",
                )


def _is_summary(path: Path) -> bool:
    try:
        return is_summary_0(read_json_object(path, ""))
    except ProfilingError:
        return False


# One run per directory at a time.


def locked(run_dir: Path) -> AbstractContextManager[None]:
    """Lock `run_dir` for the length of the block, or raise an error that names who holds it."""
    return lock_of(run_dir).held()


def lock_of(run_dir: Path) -> LockFile:
    """The lock lies beside the directory, because the directory may be moved aside meanwhile."""
    path = run_dir.parent / f".{run_dir.name}.lock"
    return LockFile(path, str(run_dir), "wait for it to end, or choose another folder")


# Finds the program that explains a dump: the run's own graph, the .pte that was run, or one nearby.

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
