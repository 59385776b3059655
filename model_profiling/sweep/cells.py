"""The cells of a sweep, the jobs that measure them, and the folder that records how each cell ended.

A cell is what people count: one model in one dtype for one backend, one case (a method and its inputs), one
number of threads, one rung, one target. A job is all cells of one program and case on one target: one Dask
task, which makes one run directory.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

from model_profiling.config.names import earlier_name, format_of_name, variant_of, with_method
from model_profiling.config.settings import ProfileConfig
from model_profiling.config.sweep import LADDER, SweepCase, SweepConfig
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.files import LockFile
from model_profiling.core.records import read_json_object, read_record, record_json
from model_profiling.core.safe_read import is_there
from model_profiling.models import registry
from model_profiling.runner.machine import TargetChoice, parse_target, place_of
from model_profiling.runs.begin import check_folder
from model_profiling.runs.journal import moment
from model_profiling.runs.manifest import Manifest, Result, read_manifest
from model_profiling.targets import Target
from model_profiling.workflow.measure import experiment_of_rung, make_rung_config

CELLS, SWEEP = "cells.json", "sweep.json"
RUNS, ARTIFACTS = "runs", "artifacts"
WORK = ".work"
"""What workers of this machine have in hand; removed when the sweep ends or is continued."""
_AGAIN = "remove the folder, or choose another --outdir"

CellState = Literal["waiting", "done", "failed", "left out"]


@dataclass(frozen=True, slots=True)
class SweepProgram:
    """One export. `model` is a .pte file or what `export_model` takes; `name`, the file's stem, is unique."""

    name: str
    model: str
    dtype: str | None = None
    backend: str | None = None
    keep: tuple[str, ...] = ()
    calibration: str | None = None
    optimize: bool | str = False


@dataclass(frozen=True, slots=True)
class Cell:
    program: SweepProgram
    threads: int
    rung: str
    target: str
    case: str = ""
    """The name of its case; empty for the only method with the usual inputs."""

    @property
    def run_name(self) -> str:
        return with_method(self.program.name, None, self.case)

    @property
    def job_id(self) -> str:
        return f"{self.run_name}/{place_of(self.target)}"

    @property
    def id(self) -> str:
        """`toy_cnn_xnnpack_fp16/android-SERIAL/off/t4`: the same in every process and session."""
        return f"{self.job_id}/{self.rung}/t{self.threads}"

    @property
    def values(self) -> dict[str, object]:
        """Its value of each thing that a sweep varies, as exclusions name them."""
        program = self.program
        return {
            **{"model": program.model, "case": self.case, "dtype": program.dtype, "backend": program.backend},
            **{"threads": self.threads, "rung": self.rung, "target": self.target},
        }


@dataclass(frozen=True, slots=True)
class SweepJob:
    """All cells of one program's case on one target: one run directory, `runs/<program>/<place>` of the
    sweep, with the case after the program's name."""

    program: SweepProgram
    case: SweepCase
    target: str
    sweep: SweepConfig

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(self.program, threads, rung.name, self.target, self.case.name)
            for rung in self.sweep.rungs
            for threads in self.sweep.threads
        )

    @property
    def id(self) -> str:
        return self.cells[0].job_id

    @property
    def run_dir(self) -> str:
        """Relative to the sweep's folder."""
        return f"{RUNS}/{self.id}"

    @property
    def choice(self) -> TargetChoice:
        choice = parse_target(self.target)
        return replace(choice, power_mode=self.sweep.power_mode) if choice.name == "android" else choice

    @property
    def seconds(self) -> float | None:
        """The time limit of its schedule; None if it has none, and under emulation, which does not use it."""
        return None if self.target == "emulated" else self.sweep.schedule.time_limit_s

    def config(self, program: Path, output_root: Path, target: Target) -> ProfileConfig:
        """What to measure: one experiment per rung, each other rung compared with `on`. `target` must be
        open, because a ladder asks it for its CPU's features."""
        sweep = self.sweep
        return make_rung_config(
            target,
            program,
            output_root,
            {rung.name: rung.disable for rung in sweep.rungs},
            sweep.schedule,
            threads=sweep.threads,
            runs=sweep.runs,
            warmup=sweep.warmup,
            method=self.case.method,
            inputs=self.case.inputs,
        )


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The state of a cell. `reason` and `fix` are for a failed or left-out cell. `run_dir` is relative to the
    sweep's folder."""

    cell: Cell
    state: CellState = "waiting"
    reason: str = ""
    fix: str = ""
    run_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """`cells.json`: every cell of a sweep, once."""

    schema_version: int = 1
    name: str
    began: str
    ended: str | None = None
    cells: tuple[CellRecord, ...] = ()

    def counts(self) -> dict[CellState, int]:
        return dict(Counter(record.state for record in self.cells))


def read_sweep_record(folder: Path) -> SweepRecord:
    return read_record(SweepRecord, folder / CELLS, _AGAIN)


def all_cells(sweep: SweepConfig) -> tuple[CellRecord, ...]:
    """Every combination once, in the order of the file: waiting, or left out with a reason."""
    return tuple(
        CellRecord(cell, "left out", unsupported) if unsupported else CellRecord(cell)
        for job, unsupported in _all_jobs(sweep)
        for cell in job.cells
    )


def jobs(sweep: SweepConfig) -> tuple[SweepJob, ...]:
    """What is measured, by program, case and target, in the order of the file."""
    return tuple(job for job, unsupported in _all_jobs(sweep) if not unsupported)


def _all_jobs(sweep: SweepConfig) -> Iterator[tuple[SweepJob, str]]:
    """Each job, with the reason if it is left out."""
    for program, unsupported in _programs(sweep):
        for case, target in product(sweep.cases_of(program.model), sweep.targets):
            yield SweepJob(program, case, target, sweep), unsupported


def _programs(sweep: SweepConfig) -> Iterator[tuple[SweepProgram, str]]:
    """Each program, with the reason if it is left out."""
    for model in sweep.models:
        if model.endswith(".pte"):
            stem = Path(model).stem
            _, variant = variant_of(Path(model))
            named = (format_of_name(stem), variant.partition("_")[0]) if variant != stem else ()
            yield SweepProgram(stem, model, *named), ""
            continue
        settings = sweep.keep.get(model, ()), sweep.calibrate.get(model), sweep.optimize.get(model, False)
        for dtype in sweep.dtypes:
            for backend in sweep.backends:
                name = sweep.program_name(model, dtype, backend)
                yield SweepProgram(name, model, dtype, backend, *settings), _unsupported(model, dtype)


def _unsupported(model: str, dtype: str) -> str:
    chosen = registry.choose(model)
    if chosen is None:
        return ""
    try:
        registry.discover()[chosen.model].check_dtype(dtype)
    except InputError as problem:
        return problem.problem
    return ""


def program_path(program: SweepProgram, artifacts: Path) -> Path:
    return Path(program.model) if program.model.endswith(".pte") else artifacts / f"{program.name}.pte"


def sweep_seconds(jobs: Iterable[SweepJob]) -> float:
    """How long measuring takes at most: targets in parallel, the jobs of a target one after the other. What
    is exported, emulated or has no limit does not count."""
    by_target: dict[str, float] = {}
    for job in jobs:
        by_target[job.target] = by_target.get(job.target, 0.0) + (job.seconds or 0.0)
    return max(by_target.values(), default=0.0)


@dataclass(slots=True)
class SweepFolder:
    """An open sweep, locked for its holder. Every change is on disk when the call returns."""

    path: Path
    sweep: SweepConfig
    record: SweepRecord
    moved: Path | None = None
    """Where an earlier sweep was moved to."""

    @property
    def artifacts(self) -> Path:
        return self.path / ARTIFACTS

    def run_dir(self, job: SweepJob) -> Path:
        return self.path / job.run_dir

    def waiting_jobs(self) -> list[SweepJob]:
        waiting = {record.cell.id for record in self.record.cells if record.state == "waiting"}
        return [job for job in jobs(self.sweep) if any(cell.id in waiting for cell in job.cells)]

    def is_measured(self, job: SweepJob) -> bool:
        """Whether its run came home whole: a sweep that was killed then did not record it."""
        return all(record.state == "done" for record in cell_outcomes(job, self.run_dir(job)))

    def fail(self, job: SweepJob, reason: str, fix: str = "") -> None:
        """Record that no cell of a job could be measured."""
        self._set([CellRecord(cell, "failed", reason, fix) for cell in job.cells])

    def conclude(self, job: SweepJob) -> None:
        """Record how each cell of a job ended, from its run directory."""
        self._set(cell_outcomes(job, self.run_dir(job)))

    def end(self) -> None:
        self._write(replace(self.record, ended=moment()))

    def _set(self, ended: list[CellRecord]) -> None:
        cells = {record.cell.id: record for record in (*self.record.cells, *ended)}
        self._write(replace(self.record, cells=tuple(cells.values())))

    def _write(self, record: SweepRecord) -> None:
        files.write_json(self.path / CELLS, record_json(record))
        self.record = record


@contextlib.contextmanager
def open_sweep(path: Path, sweep: SweepConfig, *, resume: bool = False) -> Iterator[SweepFolder]:
    """Begin `sweep` in the folder `path`, or continue it there; it is locked during the block. A sweep that
    is there and not continued is moved aside under its date and time."""
    check_folder(path)
    fix = "wait for it to end, or choose another --outdir"
    with LockFile(path.parent / f".{path.name}.lock", str(path), fix).held():
        moved = _make_room(path, sweep, resume=resume)
        record = SweepRecord(name=sweep.name, began=moment(), cells=all_cells(sweep))
        if is_there(path / CELLS):
            earlier = read_sweep_record(path)
            done = {cell.cell.id: cell for cell in earlier.cells if cell.state == "done"}
            cells = tuple(done.get(cell.cell.id, cell) for cell in record.cells)
            record = replace(record, began=earlier.began, cells=cells)
        files.make_folder(path)
        files.write_json(path / CELLS, record_json(record))
        files.write_json(path / SWEEP, sweep.model_dump(mode="json", exclude_none=True))
        try:
            yield SweepFolder(path, sweep, record, moved)
        finally:
            shutil.rmtree(path / WORK, ignore_errors=True)


def _make_room(path: Path, sweep: SweepConfig, *, resume: bool) -> Path | None:
    """Make room for the sweep in `path`, or refuse; return where an earlier one was moved to."""
    shutil.rmtree(path / WORK, ignore_errors=True)
    if not is_there(path / CELLS):
        if path.is_dir() and any(path.iterdir()):
            fix = "choose another --outdir, or an empty folder"
            raise InputError(f"{path} contains files, but no sweep", fix)
        return None
    if not resume:
        return path.rename(earlier_name(path, read_sweep_record(path).began))
    before = read_json_object(path / SWEEP, _AGAIN) if is_there(path / SWEEP) else {}
    if before and _measured(before) != _measured(sweep.model_dump(mode="json", exclude_none=True)):
        fix = "continue it with its own file, or leave out --resume"
        raise InputError(f"{path} contains a sweep with other settings (its {SWEEP})", fix)
    return None


def _measured(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings that affect measurements, and may not change when a sweep is continued."""
    return {name: value for name, value in settings.items() if name not in ("notes", "store")}


def cell_outcomes(job: SweepJob, run_dir: Path) -> list[CellRecord]:
    """How each cell of `job` ended, from the manifest in `run_dir`. Experiments that the CPU cannot tell
    apart are measured once, which counts for all of them."""
    manifest = read_manifest(run_dir)
    return [
        _outcome(cell, job.run_dir, _results_of(cell, manifest) if manifest else []) for cell in job.cells
    ]


def _results_of(cell: Cell, manifest: Manifest) -> list[Result]:
    """What was measured for a cell: one result, or one per rung of a ladder."""
    experiment = experiment_of_rung(manifest.target.platform, cell.rung)
    return [
        result
        for result in manifest.results
        if result.threads == cell.threads
        for name in manifest.asked_as(result.experiment)
        if (name.startswith(experiment) if cell.rung == LADDER else name == experiment)
    ]


def _outcome(cell: Cell, run_dir: str, results: Sequence[Result]) -> CellRecord:
    failed = next((result for result in results if result.state == "failed"), None)
    if failed is not None:
        return CellRecord(cell, "failed", failed.problem or "it failed", failed.fix or "", run_dir)
    if not results:
        fix = "continue the sweep with --resume"
        return CellRecord(cell, "failed", "its run ended without measuring it", fix, run_dir)
    return CellRecord(cell, "done", run_dir=run_dir)
