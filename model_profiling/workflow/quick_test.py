"""A smoke test of the whole kit on this machine: export a small model, run, analyse and validate it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling.progress import Progress
from model_profiling.targets import TargetChoice
from model_profiling.validation.validate import Validation, validate
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.profile import ProfileOptions, profile

_MODEL = "toy_cnn"


@dataclass(frozen=True, slots=True)
class QuickTest:
    """The program that was exported, and what validating each run directory found."""

    program: Path
    runs: tuple[Validation, ...]
    failed: tuple[str, ...]
    """Experiments that did not work, and why."""

    @property
    def ok(self) -> bool:
        return not self.failed and all(run.ok for run in self.runs)


def quick_test(
    outdir: Path, target: TargetChoice, *, dtype: str = "fp16", progress: Progress | None = None
) -> QuickTest:
    """Run the smoke test into `outdir`; what an earlier one finished there is kept under its date."""
    options = ProfileOptions(
        target=target, dtype=dtype, runs=5, warmup=1, rounds=6, budget_s=6, outdir=outdir
    )
    done = profile(_MODEL, options, RunOptions(force=True), progress=progress)
    failed = tuple(
        f"{result.series}: {result.problem}" for outcome in done.outcomes for result in outcome.failed
    )
    return QuickTest(done.program, tuple(validate(outcome.run_dir) for outcome in done.outcomes), failed)
