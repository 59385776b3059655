"""What a sweep makes of a job whose measuring is over: figures, analysis and report, in its own folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model_profiling.config.reading import checked_config
from model_profiling.errors import InputError
from model_profiling.json_record import write_record
from model_profiling.run import names
from model_profiling.run.manifest import read_manifest
from model_profiling.sweep.folder import CellOutcome
from model_profiling.sweep.machine_lock import working_beside
from model_profiling.sweep.outcomes import cell_outcomes
from model_profiling.sweep.records import Job
from model_profiling.workflow.measure import RunOptions, run_config


def publish(job: Job, run_dir: Path, program: Path) -> dict[str, CellOutcome]:
    """Analyse and report the run of `job`; how each of its cells ended."""
    with working_beside():
        _bring_home(run_dir, program)
        manifest = read_manifest(run_dir)
        assert manifest is not None
        config = checked_config(manifest.settings, folder=run_dir)
        run_config(config, RunOptions(analysis_only=True))
    return cell_outcomes(job, run_dir)


def _bring_home(run_dir: Path, program: Path) -> None:
    """A worker measured it with paths of its own; here the program and the run lie elsewhere."""
    manifest = read_manifest(run_dir)
    if manifest is None:
        raise InputError(f"{run_dir} holds no run", "measure it again: continue the sweep with --resume")
    at_home = {"model": str(program.resolve()), "output_root": str(run_dir.resolve())}
    changed = replace(manifest, model=at_home["model"], settings={**manifest.settings, **at_home})
    if changed != manifest:
        write_record(run_dir / names.MANIFEST, changed)
