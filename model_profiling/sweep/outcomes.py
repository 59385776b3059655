"""What a finished run says of each cell of its job."""

from __future__ import annotations

from pathlib import Path

from model_profiling.run.manifest import Manifest, Result, read_manifest
from model_profiling.sweep.folder import CellOutcome
from model_profiling.sweep.records import Cell, Job
from model_profiling.workflow.made_configs import LADDER, experiment_of_rung

_NOT_MEASURED = "its run ended without measuring it"
_CONTINUE = "continue the sweep with --resume"


def cell_outcomes(job: Job, run_dir: Path) -> dict[str, CellOutcome]:
    """How each cell of `job` ended, by its id, as the manifest in `run_dir` tells. Experiments that the CPU
    cannot tell apart were measured as one, which is done for all of them."""
    manifest = read_manifest(run_dir)
    if manifest is None:
        missing = CellOutcome("failed", "there is no run of it", _CONTINUE)
        return {cell.id: missing for cell in job.cells}
    return {cell.id: _outcome(results_of(cell, manifest)) for cell in job.cells}


def results_of(cell: Cell, manifest: Manifest) -> tuple[Result, ...]:
    """What was measured for a cell: one result, or of a ladder one for each of its rungs."""
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
