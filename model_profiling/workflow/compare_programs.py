"""Two programs that take turns on one machine, and the comparison of the two runs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model_profiling.config import names
from model_profiling.config.series import Series, WarningLine, warning_lines
from model_profiling.config.settings import Experiment, ProfileConfig, Schedule
from model_profiling.core.errors import InputError
from model_profiling.export import ExportResult, export_model
from model_profiling.report.comparison import Comparison
from model_profiling.runs.begin import check_folder, check_startable
from model_profiling.targets import Target, TargetChoice, open_target, plan_targets
from model_profiling.workflow.compare import asked_gates, compare
from model_profiling.workflow.measure import USUAL, RunOptions, run_together
from model_profiling.workflow.profile import ProfileOptions, ProgramCase, find_or_export, one_case


def one_program(
    target: Target, program: Path, root: Path, options: ProfileOptions, case: ProgramCase
) -> ProfileConfig:
    """Return the config of a program that others are compared with: one experiment, of the same name in all
    of them, so that equal thread counts are matched."""
    return ProfileConfig(
        model=program.resolve(),
        output_root=root.resolve(),
        target=target.choice,
        experiments=(Experiment(name="program", sme2="on", threads=options.threads),),
        schedule=Schedule(**options.given(Schedule.model_fields)),
        method=case.method,
        inputs=case.inputs,
    )


@dataclass(frozen=True, slots=True)
class ProgramsCompared:
    comparison: Comparison
    a: Path
    b: Path
    home: Path
    warnings: tuple[WarningLine, ...]
    """One line for each kind, with the sides that it concerns."""


def compare_programs(
    a: Path,
    b: Path,
    options: ProfileOptions,
    run: RunOptions = USUAL,
    **gates: Any,
) -> ProgramsCompared:
    """Measure both programs in the same launches and judge B against A, with the `gates` of `compare`. The
    runs are kept in the `outdir` of `options` (default `out_compare/<A>_vs_<B>`, with the case if one is
    chosen), one folder each, like any other runs."""
    programs = [find_or_export(str(path), ProfileOptions()) for path in (a, b)]
    cases = [one_case(program, options) for program in programs]
    place = open_target(plan_targets(options.target).main)
    gated, limits = asked_gates(**gates)
    if not place.timings_are_latency and (gates.get("limit") is not None or limits or not gated):
        raise InputError(
            f"times on target {place.name} are not latencies: they cannot be compared",
            "compare kernels or structure instead (--fail-on-change), or "
            "measure on an Arm machine; --target host compares on this CPU, which says nothing about Arm",
        )
    case_words = names.with_method(f"{a.stem}_vs_{b.stem}", options.method, cases[0].inputs.file_words)
    home = options.outdir or Path("out_compare") / case_words
    check_folder(home)
    roots = [home / side / place.place for side in "ab"]
    for root in roots:
        check_startable(root)
    configs = [
        one_program(place, program, root, options, case)
        for program, root, case in zip(programs, roots, cases, strict=True)
    ]
    ours, theirs = run_together(configs, place, run)
    comparison = compare(ours.run_dir, theirs.run_dir, **gates)
    comparison = replace(
        comparison, a=replace(comparison.a, name=str(a)), b=replace(comparison.b, name=str(b))
    )
    sides = {"A": ours.data, "B": theirs.data}
    remarks = (
        replace(remark, series=Series(side, remark.series.threads)) if remark.series else remark
        for side, data in sides.items()
        for remark in data.remarks
    )
    all_series = {Series(side, series.threads) for side, data in sides.items() for series in data.run.series}
    return ProgramsCompared(
        comparison, ours.run_dir, theirs.run_dir, home, warning_lines(remarks, all_series)
    )


def compare_kept(model: str, made: ExportResult, asked: Mapping[str, Any]) -> Comparison | None:
    """Say what the layers that `made` suggests to keep in float32 cost in time: the model is exported so, and
    both programs take turns on this machine. None if nothing is suggested, or one method is not all."""
    noise = made.accuracy.layers
    if noise is None or noise.suggested is None or len(made.methods) > 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        again = {"keep": (*asked["keep"], *noise.suggested.layers), "by_layer": False, "outdir": Path(folder)}
        kept = export_model(model, **{**asked, **again})
        options = ProfileOptions(target=TargetChoice("host"), outdir=Path(folder) / "runs", budget_s=10)
        return compare_programs(made.pte, kept.pte, options).comparison
