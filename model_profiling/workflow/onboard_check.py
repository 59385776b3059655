"""Whether a model is onboarded: it exports in every dtype it is registered for, computes what PyTorch does,
and runs on this machine; and what of its time is spent outside delegates, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.outside_lines import outside_lines
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.check import Check, CheckList, Status, check_lines
from model_profiling.errors import ProfilingError, SetupError
from model_profiling.export.reading import read_export
from model_profiling.export.records import ExportResult
from model_profiling.models.catalog import load_model
from model_profiling.models.registry import DTYPES
from model_profiling.progress import Progress, Silent
from model_profiling.targets import TargetChoice
from model_profiling.wording import milliseconds, percent, plural, rounded_parts
from model_profiling.workflow.measure import RunOptions, RunOutcome
from model_profiling.workflow.profile import ProfileOptions, profile_programs
from model_profiling.workflow.programs import find_or_export

SHORT = ProfileOptions(target=TargetChoice("host"), runs=5, warmup=1, rounds=6, budget_s=6)
"""Enough to say that it runs and where its time goes; `sme2prof profile` measures."""
_NAMED = 3
"""Lines of the model that are named; the report has all."""


@dataclass(frozen=True, slots=True)
class OutsideTime:
    """What one line of the model leaves outside the delegate."""

    call: str
    place: str
    share: float
    """Of an inference with the tracer on."""
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class DtypeCheck:
    """What came of one dtype; what could not be had is None."""

    dtype: str
    program: str | None = None
    delegated: int | None = None
    operators: int | None = None
    median_ms: float | None = None
    outside_share: float | None = None
    """Of an inference with the tracer on, in operators outside delegates."""
    outside: tuple[OutsideTime, ...] = ()
    report: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCheck(CheckList):
    """Everything that was tried with one model."""

    model: str
    dtypes: tuple[DtypeCheck, ...]

    def as_text(self) -> str:
        """The checks, the verdict last."""
        worked = ", ".join(each.dtype for each in self.dtypes if each.median_ms is not None)
        ready = f"ready: {self.model} exports and runs in {worked}"
        return "\n".join(
            [*check_lines(self.checks), "", f"not ready: {self.failed}" if self.failed else ready]
        )


def check_model(model: str, *, outdir: Path | None = None, progress: Progress | None = None) -> ModelCheck:
    """Export `model` in every dtype it is registered for, run it here for some seconds, and say what is left
    to do. What cannot be loaded at all, or what this machine lacks, is an error."""
    progress = progress or Silent()
    progress.stage(f"loading {model}")
    named = load_model(model)
    dtypes = named.entry.dtypes if named.entry else DTYPES
    programs: dict[str, Path] = {}
    problems: dict[str, ProfilingError] = {}
    for dtype in dtypes:
        try:
            programs[dtype] = find_or_export(model, dtype=dtype, outdir=outdir, progress=progress)
        except SetupError:
            raise
        except ProfilingError as problem:
            problems[dtype] = problem
    exports = {dtype: read_export(program) for dtype, program in programs.items()}
    runs: dict[str, RunOutcome] = {}
    if programs:
        short = replace(SHORT, outdir=outdir)
        done = profile_programs(list(programs.values()), short, RunOptions(force=True), progress=progress)
        runs = {dtype: outcome.main for dtype, outcome in zip(programs, done, strict=True)}
    checks = [*_refused(problems)]
    found = []
    for dtype, export in exports.items():
        result = _found(dtype, export, runs[dtype])
        found.append(result)
        checks += [*_export_checks(export), *_run_checks(result, runs[dtype])]
    return ModelCheck(tuple(checks), named.name, tuple(found))


def _refused(problems: dict[str, ProfilingError]) -> Iterator[Check]:
    """What could not be exported; what fails alike in several dtypes is said once."""
    alike: dict[tuple[str, str], list[str]] = {}
    for dtype, problem in problems.items():
        alike.setdefault((problem.problem, problem.fix), []).append(dtype)
    for (what, fix), dtypes in alike.items():
        yield Check(f"{'/'.join(dtypes)} export", "fail", what, fix)


def _export_checks(export: ExportResult) -> Iterator[Check]:
    coverage, lowering = export.coverage, export.accuracy.lowering
    taken = f"{coverage.delegated} of {plural(coverage.operators, 'operator')} delegated"
    parts = f", in {plural(coverage.partitions, 'delegate')}" if coverage.partitions else ""
    yield Check(f"{export.dtype} export", "pass", taken + parts)
    if lowering is not None and lowering.ok:
        near = f"as PyTorch in {export.dtype}: {lowering.distance}"
        yield Check(f"{export.dtype} outputs", "pass", near)
    for warning in export.warnings:
        what, _, fix = warning.rpartition(": ")
        status: Status = "optional" if export.accuracy.ok else "fail"
        yield Check(f"{export.dtype} outputs", status, what or fix, fix if what else "")


def _found(dtype: str, export: ExportResult, run: RunOutcome) -> DtypeCheck:
    headline = run.data.headline
    series = headline.dumps if headline else None
    summary = headline.summary if headline else None
    return DtypeCheck(
        dtype,
        program=str(export.pte),
        delegated=export.coverage.delegated,
        operators=export.coverage.operators,
        median_ms=summary.median if summary else None,
        outside_share=_spent_outside(series) if series else None,
        outside=tuple(_outside(series)) if series else (),
        report=str(run.report),
    )


def _spent_outside(series: SeriesAnalysis) -> float:
    return series.spent_by([operator for operator in series.operators if not operator.delegated]).share


def _outside(series: SeriesAnalysis) -> list[OutsideTime]:
    """Most of the time first."""
    left = [operator for operator in series.operators if not operator.delegated]
    lines = [
        OutsideTime(line.name, line.place, series.spent_by(line.operators).share, line.why, line.remedy)
        for line in outside_lines(series, left)
    ]
    return sorted(lines, key=lambda line: -line.share)


def _run_checks(found: DtypeCheck, run: RunOutcome) -> Iterator[Check]:
    for failed in run.failed:
        yield Check(f"{found.dtype} run", "fail", failed.problem or "it failed", failed.fix or "")
    if found.median_ms is None:
        return
    data = run.data
    about = "" if data.is_arm is not False else ", no Arm CPU: its times say nothing about Arm"
    said = f"{milliseconds(found.median_ms)} ms for one inference on {data.cpu or 'this CPU'}{about}"
    yield Check(f"{found.dtype} run", "pass", said)
    series = data.headline.dumps if data.headline else None
    if series is not None and found.outside_share is not None:
        yield from _time_checks(found, series, found.outside_share)


def _time_checks(found: DtypeCheck, series: SeriesAnalysis, outside: float) -> Iterator[Check]:
    inside = series.spent_by([operator for operator in series.operators if operator.delegated]).share
    parts = rounded_parts([100 * inside, 100 * outside, 100 * (1 - inside - outside)], 100.0, 1)
    where = f"{parts[0]}% inside delegates, {parts[1]}% in operators outside, {parts[2]}% in no operator"
    yield Check(f"{found.dtype} time", "pass", f"{where} (with the tracer on)")
    for line in found.outside[:_NAMED]:
        place = f" at {line.place}" if line.place else ""
        why = f": {line.why}" if line.why else ""
        said = f"{percent(line.share)} in {line.call}{place}{why}"
        yield Check(f"{found.dtype} outside", "optional", said, to_do(line.remedy))


def to_do(remedy: str) -> str:
    """`instead: ...` as something to do."""
    return remedy.replace("instead: ", "write ", 1).replace("write write ", "write ", 1)
