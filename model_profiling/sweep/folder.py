"""The folder of a sweep: beginning or continuing one there, and the record of its cells.

    OUTDIR/sweep.json     what was asked for
    OUTDIR/cells.json     the state of each cell
    OUTDIR/artifacts/     programs
    OUTDIR/runs/<program>/<place>/    a run directory for each job
    OUTDIR/report.md, report.html     everything side by side

When a new sweep begins, one that has ended is moved aside under its date and time, so that the same command
can run every night; an unfinished one is continued (`resume`) or moved aside too (`force`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.config.sweep import SweepConfig, parse_sweep
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.files import LockFile
from model_profiling.core.records import read_json_object, write_record
from model_profiling.core.safe_read import is_there
from model_profiling.pipeline.start import check_folder
from model_profiling.program.graph_file import record_beside
from model_profiling.run import names
from model_profiling.run.journal import moment
from model_profiling.run.manifest import Manifest, Result, read_manifest
from model_profiling.run.names import earlier_name
from model_profiling.sweep.cells import (
    ARTIFACTS,
    CELLS,
    SWEEP,
    Cell,
    CellRecord,
    CellState,
    Job,
    SweepRecord,
    all_cells,
    read_sweep_record,
    write_sweep_record,
)
from model_profiling.workflow.measure import LADDER, experiment_of_rung

_FREE_TO_CHANGE = frozenset({"notes", "store"})
"""Settings that may differ when a sweep is continued, because they do not affect measurements."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    state: CellState
    reason: str = ""
    fix: str = ""


@dataclass(slots=True)
class SweepFolder:
    """An open sweep, locked for its holder. Every change is on disk when the call returns."""

    path: Path
    sweep: SweepConfig
    record: SweepRecord
    moved: Path | None = None
    """Where an earlier sweep was moved to."""
    _places: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._places = {each.cell.id: place for place, each in enumerate(self.record.cells)}

    @property
    def artifacts(self) -> Path:
        return self.path / ARTIFACTS

    def run_dir(self, job: Job) -> Path:
        return self.path / job.run_dir

    def of(self, job: Job) -> tuple[CellRecord, ...]:
        return tuple(self.record.cells[self._places[cell.id]] for cell in job.cells)

    def waiting(self, job: Job) -> bool:
        return any(not each.ended for each in self.of(job))

    def mark(self, job: Job, state: CellState, reason: str = "", fix: str = "") -> None:
        """Set the state of all cells of a job that have not ended."""
        outcome = CellOutcome(state, reason, fix)
        self._set(job, {each.cell.id: outcome for each in self.of(job) if not each.ended})

    def conclude(self, job: Job, outcomes: Mapping[str, CellOutcome]) -> None:
        """Record how each cell of a job ended; `outcomes` is by cell id."""
        self._set(job, {cell.id: outcomes[cell.id] for cell in job.cells})

    def settle_device(self, target: str, device: str) -> None:
        """Record that `target` means `device`, also when the sweep is continued."""
        if self.record.devices.get(target) != device:
            self._write(replace(self.record, devices={**self.record.devices, target: device}))

    def end(self) -> None:
        self._write(replace(self.record, ended=moment()))

    def _set(self, job: Job, outcomes: Mapping[str, CellOutcome]) -> None:
        run_dir = job.run_dir if self.run_dir(job).is_dir() else None
        cells = list(self.record.cells)
        for cell_id, found in outcomes.items():
            place = self._places[cell_id]
            cells[place] = replace(
                cells[place],
                state=found.state,
                reason=found.reason,
                fix=found.fix,
                run_dir=run_dir or cells[place].run_dir,
            )
        if any(
            cells[self._places[cell_id]] != self.record.cells[self._places[cell_id]] for cell_id in outcomes
        ):
            self._write(replace(self.record, cells=tuple(cells)))

    def _write(self, record: SweepRecord) -> None:
        write_sweep_record(self.path, record)
        self.record = record


@contextlib.contextmanager
def open_sweep(
    path: Path, sweep: SweepConfig, *, resume: bool = False, force: bool = False
) -> Iterator[SweepFolder]:
    """Begin or continue `sweep` in the folder `path`, which is locked during the block."""
    check_folder(path)
    lock = LockFile(
        path.parent / f".{path.name}.lock", str(path), "wait for it to end, or choose another --outdir"
    )
    with lock.held():
        moved = settle(path, sweep, resume=resume, force=force)
        if moved is None and is_there(path / CELLS):
            record = _continued(path, sweep)
        else:
            record = SweepRecord(name=sweep.name, began=moment(), cells=all_cells(sweep))
        files.make_folder(path)
        write_sweep_record(path, record)
        files.write_json(path / SWEEP, written(sweep))
        yield SweepFolder(path, sweep, record, moved)


def is_unfinished(path: Path) -> bool:
    return is_there(path / CELLS) and not read_sweep_record(path).has_ended


def settle(path: Path, sweep: SweepConfig, *, resume: bool, force: bool) -> Path | None:
    """Make room for the sweep in `path`, or refuse; return where an earlier one was moved to."""
    if not is_there(path / CELLS):
        if path.is_dir() and any(path.iterdir()):
            raise InputError(
                f"{path} contains files, but no sweep", "choose another --outdir, or an empty folder"
            )
        return None
    record = read_sweep_record(path)
    if resume:
        if changed := _changed(path, sweep):
            raise InputError(
                f"{path} contains a sweep with other settings ({', '.join(changed)})",
                "continue it with its own file, start again with --restart, or choose another --outdir",
            )
        return None
    if not record.has_ended and not force:
        left = sum(not each.ended for each in record.cells)
        raise InputError(
            f"{path} contains an unfinished sweep ({left} of {len(record.cells)} cells are left)",
            "continue it with --resume, or start again with --restart, which keeps it under its date",
        )
    kept = earlier_name(path, record.began)
    path.rename(kept)
    return kept


def written(sweep: SweepConfig) -> dict[str, object]:
    """The sweep as JSON that `parse_sweep` reads back."""
    return sweep.model_dump(mode="json", exclude_none=True)


def _changed(path: Path, sweep: SweepConfig) -> list[str]:
    """The settings that differ from those of the sweep in `path`."""
    if not is_there(path / SWEEP):
        return []  # it ended before this was written, so nothing was measured
    fix = "start the sweep again with --restart"
    earlier, problems = parse_sweep(read_json_object(path / SWEEP, fix), folder=path, files=False)
    if earlier is None:
        raise InputError(f"{path / SWEEP}: {problems[0].text}", fix)
    moved = {old: new for old, new in zip(earlier.models, sweep.models, strict=False) if _was_moved(old, new)}
    before, now = written(_with_models(earlier, moved)), written(sweep)
    names = dict.fromkeys((*before, *now))
    return [name for name in names if name not in _FREE_TO_CHANGE and before.get(name) != now.get(name)]


def _was_moved(old: str, new: str) -> bool:
    """Whether both name one file, which was moved since: people move a sweep with its models."""
    before, now = (
        Path(model if model.endswith(".pte") else model.rpartition(":")[0]) for model in (old, new)
    )
    same = before.is_absolute() and Path(old).name == Path(new).name
    return same and not is_there(before) and is_there(now)


def _with_models(sweep: SweepConfig, renamed: Mapping[str, str]) -> SweepConfig:
    def today(models: Sequence[str]) -> tuple[str, ...]:
        return tuple(renamed.get(model, model) for model in models)

    exclude = tuple(
        each.model_copy(update={"model": today(each.model)}) if each.model else each for each in sweep.exclude
    )
    cases = {renamed.get(model, model): cases for model, cases in sweep.cases.items()}
    return sweep.model_copy(update={"models": today(sweep.models), "cases": cases, "exclude": exclude})


def _continued(path: Path, sweep: SweepConfig) -> SweepRecord:
    """The record to continue from; interrupted and failed cells are tried again."""
    record = read_sweep_record(path)
    known = {each.cell.id: each for each in record.cells}
    cells = tuple(_again(known.get(each.cell.id), each) for each in all_cells(sweep))
    return replace(record, cells=cells, ended=None)


def _again(before: CellRecord | None, now: CellRecord) -> CellRecord:
    if before is None or now.state == "left out":
        return now
    return before if before.state == "done" else replace(now, run_dir=before.run_dir)


# The outcome of each cell, from the finished run of its job.

_NOT_MEASURED = "its run ended without measuring it"
_CONTINUE = "continue the sweep with --resume"


def cell_outcomes(job: Job, run_dir: Path) -> dict[str, CellOutcome]:
    """Return how each cell of `job` ended, by id, from the manifest in `run_dir`. Experiments that the CPU
    cannot tell apart are measured once, which counts for all of them."""
    manifest = read_manifest(run_dir)
    if manifest is None:
        missing = CellOutcome("failed", "there is no run of it", _CONTINUE)
        return {cell.id: missing for cell in job.cells}
    return {cell.id: _outcome(results_of(cell, manifest)) for cell in job.cells}


def results_of(cell: Cell, manifest: Manifest) -> tuple[Result, ...]:
    """What was measured for a cell: one result, or one per rung of a ladder."""
    wanted = experiment_of_rung(manifest.target.platform, cell.rung)

    def is_of_cell(result: Result) -> bool:
        asked = manifest.asked_as(result.experiment)
        if result.threads != cell.threads:
            return False
        return any(name.startswith(wanted) for name in asked) if cell.rung == LADDER else wanted in asked

    return tuple(result for result in manifest.results if is_of_cell(result))


def _outcome(results: tuple[Result, ...]) -> CellOutcome:
    if not results:
        return CellOutcome("failed", _NOT_MEASURED, _CONTINUE)
    failed = next((result for result in results if result.state == "failed"), None)
    if failed is not None:
        return CellOutcome("failed", failed.problem or "it failed", failed.fix or "")
    return CellOutcome("done")


# Runs that a worker measured, brought home.


def put_aside(run_dir: Path, program: Path, problem: str, fix: str) -> None:
    """Record in an interrupted run why it stopped, so that it can be continued."""
    manifest = read_manifest(run_dir)
    if manifest is None:
        return
    manifest = _at_home(manifest, run_dir, program)
    if manifest.sessions and manifest.sessions[-1].end == "running":
        *past, last = manifest.sessions
        last = replace(last, end="interrupted", ended=moment(), problem=problem, fix=fix or None)
        manifest = replace(manifest, state="interrupted", sessions=(*past, last))
    write_record(run_dir / names.MANIFEST, manifest)


def bring_home(run_dir: Path, program: Path) -> Manifest:
    manifest = read_manifest(run_dir)
    if manifest is None:
        raise InputError(f"there is no run in {run_dir}", "continue the sweep with --resume")
    manifest = _at_home(manifest, run_dir, program)
    write_record(run_dir / names.MANIFEST, manifest)
    return manifest


def _at_home(manifest: Manifest, run_dir: Path, program: Path) -> Manifest:
    """Replace the worker's paths by those of the program and the run here."""
    run_dir, program = run_dir.resolve(), program.resolve()
    own = {"model": str(program), "output_root": str(run_dir)}
    record = record_beside(program)
    return replace(
        manifest,
        model=own["model"],
        etrecord=str(record) if record else None,
        config=str(run_dir / names.CONFIG),
        settings={**manifest.settings, **own},
    )
