"""Analyses and reports the finished jobs of a sweep, and the sweep as a whole."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config.reading import checked_config
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.hints import needed
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.records import write_record
from model_profiling.program.graph_file import record_beside
from model_profiling.run import names
from model_profiling.run.journal import moment
from model_profiling.run.manifest import Manifest, read_manifest
from model_profiling.store.adding import Added
from model_profiling.store.run_rows import Labels
from model_profiling.store.store import Store
from model_profiling.sweep.cells import Job, SweepRecord
from model_profiling.sweep.folder import CellOutcome, cell_outcomes
from model_profiling.sweep.machine_lock import working_beside
from model_profiling.sweep.report import SweepResults, run_dirs, write_sweep_report
from model_profiling.workflow.measure import RunOptions, run_config


def publish(
    job: Job, run_dir: Path, program: Path, sweep: str, store: Store | None
) -> dict[str, CellOutcome]:
    """Analyse and report the run of `job`, add it to `store`, and return how each cell ended. A store that
    cannot be written now is tried again when the sweep ends."""
    with working_beside():
        manifest = _bring_home(run_dir, program)
        config = checked_config(manifest.settings, folder=run_dir)
        run_config(config, RunOptions(analysis_only=True))
    outcomes = cell_outcomes(job, run_dir)
    if store is not None and any(each.state == "done" for each in outcomes.values()):
        with contextlib.suppress(Exception):
            add_to_store(store, [run_dir], sweep)
    return outcomes


def add_to_store(store: Store, runs: Sequence[Path], sweep: str, progress: Progress | None = None) -> Added:
    """Add runs of a sweep while nothing is measured here; runs that are in the store are not added twice."""
    with working_beside():
        return store.add(runs, Labels(sweep=sweep), progress)


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


def _bring_home(run_dir: Path, program: Path) -> Manifest:
    manifest = read_manifest(run_dir)
    if manifest is None:
        raise InputError(f"{run_dir} holds no run", "measure it again: continue the sweep with --resume")
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


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`added` is None if no store was wanted, or nothing was measured that could be added."""

    report: Path
    found: SweepResults
    store: str | None = None
    added: Added | None = None


def check_store(address: str | None) -> Store:
    """Open or create the store before measuring; hours later is too late to learn it is not writable."""
    for module in ("duckdb", "pyarrow"):
        try:
            needed(module, "store")
        except SetupError as problem:
            raise SetupError(problem.problem, f"{problem.fix}, or give --no-store") from problem
    return Store.open(address, make=True)


def conclude(
    folder: Path, record: SweepRecord, store: Store | None, progress: Progress | None = None
) -> SweepResult:
    """Write the pages of the sweep in `folder` and add its runs to `store`, if given, each once."""
    progress = progress or Silent()
    report, found = write_sweep_report(folder, record, progress)
    runs = run_dirs(folder, record)
    if store is None or not runs:
        return SweepResult(report, found)
    progress.stage("adding the runs to the store")
    return SweepResult(report, found, store.address, add_to_store(store, runs, record.name, progress))
