"""Profiles a model in several dtypes at once to say which one to ship.

Each format has its own run directories, as if it had been profiled alone; the comparison is made from them
and the export records, and lies beside them. All formats take turns, so that their latencies are compared
launch by launch (`workflow/compare.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.coverage import FACTORS_FROM
from model_profiling.config import names
from model_profiling.config.series import Series, WarningLine, warning_lines
from model_profiling.core import files
from model_profiling.core.errors import InputError, InUseError, ProfilingError, SetupError
from model_profiling.core.number_formats import FORMATS
from model_profiling.core.records import write_record
from model_profiling.export.records import ExportResult, read_export
from model_profiling.models.catalog import NamedModel
from model_profiling.models.registry import FormatNotForModel
from model_profiling.report.data import ReportData
from model_profiling.report.document import render_markdown
from model_profiling.report.dtypes import (
    DtypeAccuracy,
    DtypeLatency,
    DtypePair,
    Dtypes,
    DtypeSide,
    Machine,
    OnSme2,
    Projected,
    decide,
    dtypes_document,
)
from model_profiling.runs import Times
from model_profiling.workflow.compare import compare
from model_profiling.workflow.measure import USUAL, RunOptions
from model_profiling.workflow.profile import (
    ProfileOptions,
    ProfileOutcome,
    find_or_export,
    one_case,
    profile_programs,
)
from model_profiling.workflow.report import write_page


@dataclass(frozen=True, slots=True)
class DtypesOutcome:
    """What `profile` returns for several number formats: `outcomes` by format, for each that worked, their
    `comparison`, and its page. In a notebook it shows that page."""

    comparison: Dtypes
    report: Path
    outcomes: dict[str, ProfileOutcome]

    def __repr__(self) -> str:
        return f"<DtypesOutcome {self.comparison.model} in {', '.join(self.outcomes)}: {self.report}>"

    def _repr_markdown_(self) -> str:
        return render_markdown(dtypes_document(self.comparison))

    @property
    def verdict(self) -> tuple[str, ...]:
        """Which format to ship, and why."""
        return self.comparison.sentences

    @property
    def warnings(self) -> tuple[WarningLine, ...]:
        """One line for each kind, with the formats it concerns."""
        all_series = {
            Series(dtype, series.threads)
            for dtype, outcome in self.outcomes.items()
            for series in outcome.main.run.series
        }
        remarks = (
            replace(remark, series=Series(dtype, remark.series.threads if remark.series else None))
            for dtype, outcome in self.outcomes.items()
            for remark in outcome.all_remarks
        )
        return warning_lines(remarks, {*all_series, *(Series(dtype) for dtype in self.outcomes)})


def profile_dtypes(
    model: str | NamedModel,
    dtypes: Sequence[str],
    options: ProfileOptions,
    run: RunOptions = USUAL,
) -> DtypesOutcome:
    """Profile `model` in each of `dtypes` (FORMATS: in all that suit it) and write `dtypes.md` and
    `dtypes.json` beside the variants. A format that fails is recorded with its reason, the others go on."""
    if isinstance(model, str) and model.endswith(".pte"):
        raise InputError(
            f"{model} is exported already, in one dtype",
            "name a model to compare dtypes, or leave --dtype out",
        )
    programs: dict[str, Path] = {}
    problems: dict[str, ProfilingError] = {}
    left_out: dict[str, str] = {}
    for dtype in dtypes:
        try:
            programs[dtype] = find_or_export(model, options.model_copy(update={"dtype": dtype}))
        except ProfilingError as problem:
            if isinstance(problem, InUseError) or (isinstance(problem, SetupError) and not programs):
                raise  # so it would be with the next format
            if isinstance(problem, FormatNotForModel) and tuple(dtypes) == FORMATS:
                left_out[dtype] = problem.problem
            else:
                problems[dtype] = problem
    if not programs:
        raise next(iter(problems.values()))
    case = one_case(next(iter(programs.values())), options)
    profiled = profile_programs(list(programs.values()), options, run, cases=[case])
    outcomes = dict(zip(programs, profiled, strict=True))
    first = next(iter(outcomes.values()))
    folder = names.runs_folder(first.program, options.outdir)
    sides = tuple(
        _side(dtype, outcomes[dtype], folder)
        if dtype in outcomes
        else DtypeSide(dtype=dtype, problem=problems[dtype].problem, fix=problems[dtype].fix)
        for dtype in dtypes
        if dtype not in left_out
    )
    comparison = Dtypes(
        model=names.variant_of(first.program)[0],
        cpu=first.main.data.cpu,
        machine=_machine(first.main.data),
        sides=sides,
        left_out=left_out,
        pairs=tuple(_pairs(sides, outcomes)),
    )
    comparison = decide(comparison)
    page = folder / names.DTYPES_PAGE
    write_record(folder / names.DTYPES, comparison)
    write_page(dtypes_document(comparison), page, f"Which number format for {comparison.model}?")
    return DtypesOutcome(comparison, page, outcomes)


def _machine(data: ReportData) -> Machine:
    if not data.timed:
        return "emulated" if data.times is Times.EMULATED else "unknown"
    if data.is_arm is None or data.has_sme2 is None:
        return "unknown"
    return "other" if not data.is_arm else "sme2" if data.has_sme2 else "arm"


def _side(dtype: str, outcome: ProfileOutcome, folder: Path) -> DtypeSide:
    data, export = outcome.main.data, read_export(outcome.program)
    headline, latency = data.headline, None
    if headline is not None and (summary := headline.summary):
        latency = DtypeLatency(headline.series, summary.median, summary.p5, summary.p95)
    outside_share = None
    if headline is not None and headline.dumps is not None and headline.times.are_latencies:
        outside = [operator for operator in headline.dumps.operators if not operator.delegated]
        outside_share = headline.dumps.spent_by(outside).share
    projected, projection = None, data.outlook.headline
    if projection is not None:
        shortest, longest = projection.ms(projection.high), projection.ms(projection.low)
        if shortest is not None and longest is not None:
            projected = Projected(shortest, longest, FACTORS_FROM)
    failed = next(iter(outcome.main.failed), None)
    return DtypeSide(
        dtype=dtype,
        keep=() if dtype == "fp32" else export.keep,
        program=files.relative_posix(folder, outcome.program),
        sha256=export.sha256,
        size_bytes=export.size_bytes,
        runs=tuple(files.relative_posix(folder, data_of_run.run.path) for data_of_run in outcome.runs),
        latency=latency,
        projected=projected,
        sme2=on_sme2(data),
        delegates=export.coverage.partitions,
        operators_inside=export.coverage.delegated,
        operators_outside=sum(group.count for group in export.coverage.outside),
        outside_time_share=outside_share,
        accuracy=_accuracy(export),
        problem=(failed.problem or "it failed") if failed else "",
        fix=(failed.fix or "") if failed else "",
    )


def on_sme2(data: ReportData) -> OnSme2:
    coverage = data.outlook.coverage
    if not coverage.tested:
        return OnSme2("not tested", coverage.reason)
    ran, operators = len(coverage.proven), len(coverage.operators)
    return OnSme2("executed", coverage.reason, ran, operators, coverage.arithmetic_share, coverage.flops)


def _accuracy(export: ExportResult) -> DtypeAccuracy | None:
    precision, lowering = export.accuracy.precision, export.accuracy.lowering
    if precision is None or lowering is None:
        return None
    wrong = ""
    if not lowering.ok:
        wrong = f"PyTorch in {export.dtype} by {lowering.distance}"
    elif not precision.ok:
        wrong = f"PyTorch in float32 by {precision.distance}"
    scored = [output for output in precision.outputs if output.top1_rows]
    rows = sum(output.top1_rows for output in scored)
    alike = rows - sum(output.top1_differs for output in scored)
    top1 = f"{alike} of {rows}" if rows else ""
    return DtypeAccuracy(precision.max_rel, export.calibration, export.accuracy.real_inputs, top1, wrong)


def _pairs(sides: Sequence[DtypeSide], outcomes: dict[str, ProfileOutcome]) -> Iterator[DtypePair]:
    """Compare the fastest with each of the others, as `sme2prof compare` does."""
    timed = {side.dtype: side.latency for side in sides if side.latency is not None}
    if len(timed) < 2:
        return
    fastest = min(timed, key=lambda dtype: timed[dtype].median_ms)
    for dtype, latency in timed.items():
        if dtype == fastest:
            continue
        judged = compare(outcomes[dtype].main.run_dir, outcomes[fastest].main.run_dir)
        for series in judged.series:
            if (series.before, series.after) == (latency.series, timed[fastest].series):
                yield DtypePair(fastest, dtype, series.end_to_end)
