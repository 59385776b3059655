"""Measures two programs that take turns on one machine, then compares the two runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.structure import Aspect
from model_profiling.config.reading import ProfileConfig, checked_config
from model_profiling.config.settings import target_settings
from model_profiling.core.errors import InputError
from model_profiling.core.progress import Progress
from model_profiling.pipeline.start import check_folder, check_startable
from model_profiling.report.comparison_document import Comparison
from model_profiling.run.remarks import Diagnostic
from model_profiling.targets import Target, TargetChoice, open_target, plan_targets
from model_profiling.workflow.compare import asked_gates, compare
from model_profiling.workflow.measure import RunOptions, run_together
from model_profiling.workflow.profile import find_or_export

_EXPERIMENT = "program"
"""Experiment name of both programs: the same, so that equal thread counts are matched."""


@dataclass(frozen=True, slots=True)
class ProgramsCompared:
    comparison: Comparison
    a: Path
    b: Path
    remarks: tuple[Diagnostic, ...]


def compare_programs(
    a: Path,
    b: Path,
    *,
    target: TargetChoice | None = None,
    threads: tuple[int, ...] = (1,),
    budget_s: float | None = None,
    outdir: Path | None = None,
    run: RunOptions | None = None,
    limit: float | None = None,
    fail_on: Iterable[Aspect] = (),
    progress: Progress | None = None,
) -> ProgramsCompared:
    """Measure both programs in the same launches and judge B against A. The runs are kept in `outdir`
    (default `out_compare/<A>_vs_<B>`), one folder each, like any other runs."""
    run = run or RunOptions()
    programs = [find_or_export(str(path)) for path in (a, b)]
    place = open_target(plan_targets(target or TargetChoice()).main)
    gates = asked_gates(limit, fail_on)
    if not place.timings_are_latency and (limit is not None or not gates):
        raise InputError(
            f"times on target {place.name} are no latencies: nothing could be compared",
            "give gates without times (--fail-on-kernel-change, --fail-on-structure-change), or measure on "
            "an Arm machine; --target host compares on this CPU, which says nothing about Arm",
        )
    home = outdir or Path("out_compare") / f"{a.stem}_vs_{b.stem}"
    check_folder(home)
    configs = []
    for side, program in zip("ab", programs, strict=True):
        root = home / side / place.place
        check_startable(root, resume=run.resume, force=run.force)
        configs.append(_config(place, program, root, threads, budget_s))
    ours, theirs = run_together(configs, place, run, progress=progress)
    found = compare(ours.run_dir, theirs.run_dir, limit=limit, fail_on=gates)
    found = replace(found, a=replace(found.a, name=str(a)), b=replace(found.b, name=str(b)))
    return ProgramsCompared(found, ours.run_dir, theirs.run_dir, (*ours.data.remarks, *theirs.data.remarks))


def _config(
    target: Target, program: Path, root: Path, threads: tuple[int, ...], budget_s: float | None
) -> ProfileConfig:
    raw = {
        "model": str(program.resolve()),
        "output_root": str(root.resolve()),
        "target": target_settings(target.choice),
        "experiments": [{"name": _EXPERIMENT, "threads": list(threads)}],
        "schedule": {"budget_s": budget_s} if budget_s is not None else {},
    }
    return checked_config(raw, folder=root)
