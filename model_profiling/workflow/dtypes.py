"""Profiles a model from Python, and in several dtypes at once to say which one to ship.

Each format has its own run directories, as if it had been profiled alone; the comparison is made from them
and the export records, and lies beside them. All formats take turns, so that their latencies are compared
launch by launch (`workflow/compare.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from pydantic import BaseModel, Field, SkipValidation, TypeAdapter, ValidationError
from typing_extensions import TypedDict, Unpack

from model_profiling.config.problems import problems_of
from model_profiling.config.settings import ScheduleMode
from model_profiling.config.values import Counted, Duration, Share, ThreadCounts, Whole
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, SetupError, WrongTypeError
from model_profiling.core.files import StrPath
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.number_formats import FORMATS, FORMATS_HELP, parse_format
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.records import write_record
from model_profiling.export.records import Deviation, ExportResult, read_export
from model_profiling.models.catalog import NamedModel, given_model
from model_profiling.models.registry import FormatNotForModel
from model_profiling.program import read_program
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.dtypes import (
    Accuracy,
    DtypePair,
    Dtypes,
    DtypeSide,
    Latency,
    Machine,
    MissesSme2,
    OnSme2,
    Projected,
    Work,
    decide,
)
from model_profiling.report.dtypes_document import dtypes_document
from model_profiling.report.html import render_fragment
from model_profiling.run import Series, Times, names
from model_profiling.run.evidence import parse_factors
from model_profiling.run.remarks import WarningLine, warning_lines
from model_profiling.runner.machine import PowerMode, TargetChoice, parse_target, target_kinds
from model_profiling.workflow.compare import compare
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.profile import (
    ProfileOptions,
    ProfileOutcome,
    find_or_export,
    one_case,
    profile_one,
    profile_programs,
)
from model_profiling.workflow.report import write_page

if TYPE_CHECKING:
    from model_profiling.models.base import Inputs, Model


@dataclass(frozen=True, slots=True)
class DtypesOutcome:
    """What `profile` returns for several number formats: `outcomes` by format, for each that worked, what
    was `found` by comparing them, and its page. In a notebook it shows that page."""

    found: Dtypes
    page: Path
    outcomes: dict[str, ProfileOutcome]

    def __repr__(self) -> str:
        return f"<DtypesOutcome {self.found.model} in {', '.join(self.outcomes)}: {self.page}>"

    def _repr_html_(self) -> str:
        return render_fragment(dtypes_document(self.found))

    @property
    def verdict(self) -> tuple[str, ...]:
        """Which format to ship, and why."""
        return (self.found.verdict,)

    @property
    def report(self) -> Path:
        """The page with the formats side by side."""
        return self.page

    @property
    def warnings(self) -> tuple[WarningLine, ...]:
        """One line for each kind, with the formats it concerns."""
        known = {
            Series(dtype, series.threads)
            for dtype, outcome in self.outcomes.items()
            for series in outcome.main.run.series
        }
        remarks = (
            replace(remark, series=Series(dtype, remark.series.threads if remark.series else None))
            for dtype, outcome in self.outcomes.items()
            for remark in outcome.all_remarks
        )
        return warning_lines(remarks, {*known, *(Series(dtype) for dtype in self.outcomes)})


Flag = Annotated[bool, Field(strict=True)]


class Settings(TypedDict, total=False):
    """The options of `sme2prof profile`; None is the usual value."""

    target: SkipValidation[str | TargetChoice | None]
    power_mode: PowerMode | None
    backend: str | None
    calibration: str | None
    keep: tuple[str, ...] | None
    method: str | None
    runs: Counted | None
    warmup: Whole | None
    threads: ThreadCounts | None
    budget_s: Duration | None
    precision: Share | None
    mode: ScheduleMode | None
    rounds: Counted | None
    sample: Flag | None
    ladder: Flag | None
    quick: Flag | None
    sme2_factor: str | None
    outdir: SkipValidation[StrPath | None]
    resume: Flag | None
    force: Flag | None


@overload
def profile(  # type: ignore[overload-overlap]  # "all" is the one word with another result
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: Literal["all"] | list[str] | tuple[str, ...],
    name: str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> DtypesOutcome: ...


@overload
def profile(
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: str | None = None,
    name: str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> ProfileOutcome: ...


def profile(
    model: Model,
    inputs: Inputs | None = None,
    *,
    dtype: str | list[str] | tuple[str, ...] | None = None,
    name: str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> ProfileOutcome | DtypesOutcome:
    """Export `model` if it is not a program yet, run it as this machine can, and analyse what came of it.

    `model` is a `torch.nn.Module` with its `inputs` (a tensor, a tuple of positional inputs or a dict of
    keyword inputs), a name that `sme2prof models` lists, `file.py:factory`, or the path of a .pte file.

        outcome = profile(module, torch.rand(1, 3, 224, 224), target="host", dtype="fp16")
        outcome.analysis.operators.to_pandas()

    `dtype` is fp32 (the default), fp16, int8, int8-dynamic, int4, int4:GROUP or `file.py:quantizer`; with
    "all" or a list of them the formats take turns, and the result is a `DtypesOutcome`. `settings` are the
    options of `sme2prof profile`: target ("auto", "host", "emulated", "android:SERIAL", "ssh:HOST"),
    power_mode, backend, calibration, keep, method, runs, warmup, threads, budget_s, precision, mode, rounds,
    sample, ladder, quick, sme2_factor, outdir, resume, force.

    A module is exported in evaluation mode and left as it was; `name` replaces its class's name in the names
    of files. Everything is written into `out_<name>` or `outdir`, and nothing is printed. A finished run that
    is there is kept under its date; an unfinished one is an `InputError` unless `resume=True` continues or
    `force=True` discards it. Failures are `ProfilingError`s that say what to do; a wrong type is a
    `TypeError`, too.
    """
    named = given_model(model, inputs, name)
    if name is not None and isinstance(named, str):
        raise InputError(f"{named} has a name already", "name is for a torch.nn.Module; leave it out")
    dtypes = _asked_dtypes(dtype)
    given = _checked(settings)
    power_mode: PowerMode = given.pop("power_mode", "leave")
    target = replace(_as_target(given.pop("target", "auto")), power_mode=power_mode)
    if power_mode != "leave" and target.kind != "android":
        raise InputError(f"power_mode {power_mode} is for a phone", 'give target="android"')
    factors = parse_factors(given.pop("sme2_factor")) if "sme2_factor" in given else None
    run = RunOptions(resume=given.pop("resume", False), force=given.pop("force", False), factors=factors)
    options = ProfileOptions(target=target, **given)
    if dtypes is not None:
        return profile_dtypes(named, dtypes, options, run, progress=progress)
    one = replace(options, dtype=dtype if isinstance(dtype, str) else None)
    return profile_one(named, one, run, progress=progress)


def _asked_dtypes(dtype: object) -> tuple[str, ...] | None:
    """The formats to put side by side; None if one alone is asked for."""
    choices = f"choose from {FORMATS_HELP}, give a list of them, or all"
    if not isinstance(dtype, str | list | tuple | None):
        raise WrongTypeError(f"dtype is of type {type(dtype).__name__}", choices)
    if dtype == "all":
        return FORMATS
    if dtype is None or isinstance(dtype, str):
        parse_format(dtype or "fp32")
        return None
    asked = tuple(parse_format(str(each)).text for each in dtype)
    if not asked or len(set(asked)) < len(asked):
        raise InputError(f"dtype is {dtype!r}", choices)
    return asked


def _as_target(given: object) -> TargetChoice:
    if isinstance(given, TargetChoice):
        return given
    if not isinstance(given, str):
        kinds = ", ".join(target_kinds())
        raise WrongTypeError(f"target is of type {type(given).__name__}", f"choose from {kinds}")
    return parse_target(given)


def _checked(settings: Settings) -> dict[str, Any]:  # typed by pydantic
    """The settings that are not None."""
    for unknown in settings.keys() - Settings.__annotations__.keys():
        known = ", ".join(Settings.__annotations__)
        hint = did_you_mean(unknown, Settings.__annotations__) or f"choose from {known}"
        raise WrongTypeError(f"profile() has no setting {unknown!r}", hint)
    try:
        checked = TypeAdapter(Settings).validate_python(settings)
    except ValidationError as error:
        first = problems_of(error, BaseModel)[0]
        wrong_type = error.errors()[0]["type"].endswith("_type")
        raise (WrongTypeError if wrong_type else InputError)(first.text, first.fix) from error
    return {key: value for key, value in checked.items() if value is not None}


def profile_dtypes(
    model: str | NamedModel,
    dtypes: Sequence[str],
    options: ProfileOptions | None = None,
    run: RunOptions | None = None,
    *,
    progress: Progress | None = None,
) -> DtypesOutcome:
    """Profile `model` in each of `dtypes` (FORMATS: in all that suit it) and write `dtypes.md` and
    `dtypes.json` beside the variants. A format that fails is recorded with its reason, the others go on."""
    if isinstance(model, str) and model.endswith(".pte"):
        raise InputError(
            f"{model} is exported already, in one dtype",
            "name a model to compare dtypes, or leave --dtype out",
        )
    options, progress = options or ProfileOptions(), progress or Silent()
    programs: dict[str, Path] = {}
    problems: dict[str, ProfilingError] = {}
    left_out: dict[str, str] = {}
    for dtype in dtypes:
        try:
            programs[dtype] = find_or_export(model, **options.exporting(dtype), progress=progress)
        except ProfilingError as problem:
            if isinstance(problem, SetupError) and not programs:
                raise  # this machine lacks it for the next format, too
            if isinstance(problem, FormatNotForModel) and tuple(dtypes) == FORMATS:
                left_out[dtype] = problem.problem
            else:
                problems[dtype] = problem
    if not programs:
        raise next(iter(problems.values()))
    case = one_case(next(iter(programs.values())), options)
    profiled = profile_programs(list(programs.values()), options, run, cases=[case], progress=progress)
    outcomes = dict(zip(programs, profiled, strict=True))
    first = next(iter(outcomes.values()))
    folder = names.runs_folder(first.program, options.home)
    found = side_by_side(
        [each for each in dtypes if each not in left_out], outcomes, problems, folder, left_out
    )
    page = folder / names.DTYPES_PAGE
    write_record(folder / names.DTYPES, found)
    write_page(dtypes_document(found), page, f"Which number format for {found.model}?")
    return DtypesOutcome(found, page, outcomes)


def side_by_side(
    dtypes: Sequence[str],
    outcomes: dict[str, ProfileOutcome],
    problems: dict[str, ProfilingError],
    folder: Path,
    left_out: dict[str, str] | None = None,
) -> Dtypes:
    """Return the comparison with its verdict; its paths are relative to `folder`."""
    sides = tuple(
        _side(dtype, outcomes[dtype], folder)
        if dtype in outcomes
        else DtypeSide(dtype=dtype, problem=problems[dtype].problem, fix=problems[dtype].fix)
        for dtype in dtypes
    )
    first = next(iter(outcomes.values())).main.data
    found = Dtypes(
        model=names.variant_of(next(iter(outcomes.values())).program)[0],
        cpu=first.cpu,
        machine=_machine(first),
        sides=sides,
        left_out=left_out or {},
        pairs=tuple(_pairs(sides, outcomes)),
    )
    ship, verdict = decide(found)
    return replace(found, ship=ship, verdict=verdict)


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
        latency = Latency(headline.series, summary.median, summary.p5, summary.p95)
    failed = next(iter(outcome.main.failed), None)
    return DtypeSide(
        dtype=dtype,
        keep=() if dtype == "fp32" else export.keep,
        program=files.relative_posix(folder, outcome.program),
        sha256=export.sha256,
        size_bytes=export.size_bytes,
        runs=tuple(files.relative_posix(folder, each.run_dir) for each in outcome.outcomes),
        latency=latency,
        projected=_projected(data),
        sme2=_on_sme2(data),
        work=_work(outcome.program),
        delegates=export.coverage.partitions,
        operators_inside=export.coverage.delegated,
        outside=export.coverage.outside,
        outside_time_share=_time_outside(headline),
        accuracy=_accuracy(export),
        problem=(failed.problem or "it failed") if failed else "",
        fix=(failed.fix or "") if failed else "",
    )


def _projected(data: ReportData) -> Projected | None:
    found = data.outlook.headline
    if found is None:
        return None
    shortest, longest = found.ms(found.high), found.ms(found.low)
    if shortest is None or longest is None:
        return None
    return Projected(shortest, longest, data.outlook.factors.origin)


def _on_sme2(data: ReportData) -> OnSme2:
    found = data.outlook.coverage
    if not found.tested:
        return OnSme2("not tested", found.reason)
    reasons: dict[str, list[float]] = {}
    for each in found.missing:
        reasons.setdefault(each.reason, []).append(each.share or 0.0)
    missing = [MissesSme2(reason, len(shares), sum(shares)) for reason, shares in reasons.items()]
    return OnSme2(
        "executed",
        found.reason,
        len(found.proven),
        len(found.operators),
        found.arithmetic_share,
        tuple(sorted(missing, key=lambda each: -each.arithmetic_share)),
    )


def _work(program: Path) -> Work:
    methods = read_program(program).methods
    outside = [(step.flops, step.bytes_moved) for method in methods for step in method.operators]
    inside = [
        (node.flops, node.bytes_moved)
        for method in methods
        for delegate in method.delegates
        for node in delegate.nodes
    ]
    steps = (*inside, *outside)
    return Work(sum(flops for flops, _ in steps), sum(moved for _, moved in steps))


def _time_outside(headline: ExperimentReport | None) -> float | None:
    if headline is None or headline.dumps is None or not headline.times.are_latencies:
        return None
    outside = [operator for operator in headline.dumps.operators if not operator.delegated]
    return headline.dumps.spent_by(outside).share


def _accuracy(export: ExportResult) -> Accuracy | None:
    precision, lowering = export.accuracy.precision, export.accuracy.lowering
    if precision is None or lowering is None:
        return None
    wrong = ""
    if not lowering.ok:
        wrong = f"PyTorch in {export.dtype} by {lowering.distance}"
    elif not precision.ok:
        wrong = f"PyTorch in float32 by {precision.distance}"
    return Accuracy(
        error=precision.max_rel,
        limit=precision.tolerance,
        lowering_error=lowering.max_rel,
        lowering_limit=lowering.tolerance,
        cosine=precision.cosine,
        calibration=export.calibration,
        real_inputs=export.accuracy.real_inputs,
        top1=_top1(precision),
        wrong=wrong,
    )


def _top1(precision: Deviation) -> str:
    scored = [output for output in precision.outputs if output.top1_rows]
    rows = sum(output.top1_rows for output in scored)
    others = sum(output.top1_differs + output.top1_near_ties for output in scored)
    return f"{rows - others} of {rows}" if rows else ""


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
