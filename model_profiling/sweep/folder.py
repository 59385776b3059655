"""The folder of a sweep: beginning or continuing one there, and the record of its cells.

When a new sweep begins, one that has ended is moved aside under its date and time, so that the same command
can run every night; an unfinished one is continued (`resume`) or moved aside too (`force`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.config.names import earlier_name
from model_profiling.config.sweep import SweepConfig
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.files import LockFile
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import is_there
from model_profiling.runs.begin import check_folder
from model_profiling.runs.journal import moment
from model_profiling.runs.manifest import Manifest, Result, read_manifest
from model_profiling.sweep.cells import (
    CELLS,
    Cell,
    CellRecord,
    Job,
    SweepRecord,
    all_cells,
    jobs,
    read_sweep_record,
    write_sweep_record,
)
from model_profiling.workflow.measure import LADDER, experiment_of_rung

SWEEP = "sweep.json"
ARTIFACTS = "artifacts"
WORK = ".work"
"""What workers of this machine have in hand; removed when the sweep ends or is continued."""
_RESTART = "start the sweep again with --restart"


@dataclass(slots=True)
class SweepFolder:
    """An open sweep, locked for its holder. Every change is on disk when the call returns."""

    path: Path
    sweep: SweepConfig
    record: SweepRecord
    moved: Path | None = None
    """Where an earlier sweep was moved to."""
    _cells: dict[str, CellRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._cells = {record.cell.id: record for record in self.record.cells}

    @property
    def artifacts(self) -> Path:
        return self.path / ARTIFACTS

    def run_dir(self, job: Job) -> Path:
        return self.path / job.run_dir

    def waiting_jobs(self) -> list[Job]:
        waiting = {cell_id for cell_id, record in self._cells.items() if record.state == "waiting"}
        return [job for job in jobs(self.sweep) if any(cell.id in waiting for cell in job.cells)]

    def is_measured(self, job: Job) -> bool:
        """Whether its run came home whole: a sweep that was killed then did not record it."""
        return all(record.state == "done" for record in cell_outcomes(job, self.run_dir(job)))

    def fail(self, job: Job, reason: str, fix: str = "") -> None:
        """Record that no cell of a job could be measured."""
        self._set([CellRecord(cell, "failed", reason, fix) for cell in job.cells])

    def conclude(self, job: Job) -> None:
        """Record how each cell of a job ended, from its run directory."""
        self._set(cell_outcomes(job, self.run_dir(job)))

    def end(self) -> None:
        self._write(replace(self.record, ended=moment()))

    def _set(self, ended: list[CellRecord]) -> None:
        self._cells.update((record.cell.id, record) for record in ended)
        self._write(replace(self.record, cells=tuple(self._cells.values())))

    def _write(self, record: SweepRecord) -> None:
        write_sweep_record(self.path, record)
        self.record = record


@contextlib.contextmanager
def open_sweep(
    path: Path, sweep: SweepConfig, *, resume: bool = False, force: bool = False
) -> Iterator[SweepFolder]:
    """Begin or continue `sweep` in the folder `path`, which is locked during the block."""
    check_folder(path)
    fix = "wait for it to end, or choose another --outdir"
    with LockFile(path.parent / f".{path.name}.lock", str(path), fix).held():
        moved = _make_room(path, sweep, resume=resume, force=force)
        record = SweepRecord(name=sweep.name, began=moment(), cells=all_cells(sweep))
        if is_there(path / CELLS):
            earlier = read_sweep_record(path)
            done = {cell.cell.id: cell for cell in earlier.cells if cell.state == "done"}
            cells = tuple(done.get(cell.cell.id, cell) for cell in record.cells)
            record = replace(record, began=earlier.began, cells=cells)
        files.make_folder(path)
        write_sweep_record(path, record)
        files.write_json(path / SWEEP, _settings(sweep))
        try:
            yield SweepFolder(path, sweep, record, moved)
        finally:
            shutil.rmtree(path / WORK, ignore_errors=True)


def is_unfinished(path: Path) -> bool:
    return is_there(path / CELLS) and not read_sweep_record(path).has_ended


def _make_room(path: Path, sweep: SweepConfig, *, resume: bool, force: bool) -> Path | None:
    """Make room for the sweep in `path`, or refuse; return where an earlier one was moved to."""
    shutil.rmtree(path / WORK, ignore_errors=True)
    if not is_there(path / CELLS):
        if path.is_dir() and any(path.iterdir()):
            fix = "choose another --outdir, or an empty folder"
            raise InputError(f"{path} contains files, but no sweep", fix)
        return None
    record = read_sweep_record(path)
    if resume:
        if is_there(path / SWEEP) and _measured(read_json_object(path / SWEEP, _RESTART)) != _measured(
            _settings(sweep)
        ):
            raise InputError(
                f"{path} contains a sweep with other settings (its {SWEEP})",
                "continue it with its own file, start again with --restart, or choose another --outdir",
            )
        return None
    if not record.has_ended and not force:
        left = record.counts()["waiting"]
        raise InputError(
            f"{path} contains an unfinished sweep ({left} of {len(record.cells)} cells are left)",
            "continue it with --resume, or start again with --restart, which keeps it under its date",
        )
    kept = earlier_name(path, record.began)
    path.rename(kept)
    return kept


def _settings(sweep: SweepConfig) -> dict[str, object]:
    return sweep.model_dump(mode="json", exclude_none=True)


def _measured(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings that affect measurements, and may not change when a sweep is continued."""
    return {name: value for name, value in settings.items() if name not in ("notes", "store")}


def cell_outcomes(job: Job, run_dir: Path) -> list[CellRecord]:
    """How each cell of `job` ended, from the manifest in `run_dir`. Experiments that the CPU cannot tell
    apart are measured once, which counts for all of them."""
    manifest = read_manifest(run_dir)
    return [_outcome(cell, job.run_dir, results_of(cell, manifest) if manifest else ()) for cell in job.cells]


def results_of(cell: Cell, manifest: Manifest) -> tuple[Result, ...]:
    """What was measured for a cell: one result, or one per rung of a ladder."""
    wanted = experiment_of_rung(manifest.target.platform, cell.rung)

    def is_of_cell(result: Result) -> bool:
        asked = manifest.asked_as(result.experiment)
        if result.threads != cell.threads:
            return False
        return any(name.startswith(wanted) for name in asked) if cell.rung == LADDER else wanted in asked

    return tuple(result for result in manifest.results if is_of_cell(result))


def _outcome(cell: Cell, run_dir: str, results: tuple[Result, ...]) -> CellRecord:
    failed = next((result for result in results if result.state == "failed"), None)
    if failed is not None:
        return CellRecord(cell, "failed", failed.problem or "it failed", failed.fix or "", run_dir)
    if not results:
        fix = "continue the sweep with --resume"
        return CellRecord(cell, "failed", "its run ended without measuring it", fix, run_dir)
    return CellRecord(cell, "done", run_dir=run_dir)
