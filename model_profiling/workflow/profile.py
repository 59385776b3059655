"""The whole job in one call: a model or a program in, analysed run directories out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from model_profiling.analysis.structure import Aspect
from model_profiling.config import names
from model_profiling.config.new_config import NewConfig
from model_profiling.config.reading import ProfileConfig, checked_config
from model_profiling.config.remarks import Diagnostic, WarningLine, warning_lines
from model_profiling.config.series import Series
from model_profiling.config.settings import Inputs, ScheduleMode, target_settings
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, SetupError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import duration
from model_profiling.core.number_formats import parse_format, under_either_name
from model_profiling.core.progress import Progress, Silent
from model_profiling.export import exporter
from model_profiling.export.exporter import export_model, versions
from model_profiling.export.records import read_export
from model_profiling.models import registry
from model_profiling.models.catalog import NamedModel
from model_profiling.models.options import Chosen
from model_profiling.report.comparison import Comparison
from model_profiling.report.tables import AnalysedRun
from model_profiling.runs.begin import (
    check_folder,
    check_startable,
    choose_methods,
    one_method,
    why_once,
)
from model_profiling.runs.feeding import feed, sizes_for_length
from model_profiling.runs.folders import locked
from model_profiling.runs.schedule import emulated_seconds
from model_profiling.statistics.speedup import EXACT_ROUNDS
from model_profiling.targets import Target, TargetChoice, TargetPlan, open_target, plan_targets
from model_profiling.targets.machine_lock import working_beside
from model_profiling.workflow.analyse import keep_evidence
from model_profiling.workflow.compare import asked_gates, compare
from model_profiling.workflow.measure import (
    ABOUT_LATENCY,
    RunOptions,
    RunOutcome,
    make_pair_config,
    republish,
    run_together,
)
from model_profiling.workflow.report import write_combined_report

# The program to profile: the .pte file that the user named, a current export, or a new export.


def find_or_export(
    model: str | NamedModel,
    *,
    dtype: str | None = None,
    backend: str | None = None,
    outdir: Path | None = None,
    calibration: str | None = None,
    keep: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> Path:
    """Return the .pte of `model`. A registered model is exported again only if the result could differ; a
    user's own model is always exported, because its dependencies are unknown. `dtype` and `backend` (default
    fp32, xnnpack), `calibration` and `keep` apply to exports only."""
    progress = progress or Silent()
    if isinstance(model, str) and model.endswith(".pte"):
        program = under_either_name(Path(model))
        if not program.is_file():
            raise InputError(f"there is no program {program}", "correct the path, or name a model to export")
        given = {"--dtype": dtype, "--backend": backend, "--calibrate": calibration, "--keep": keep or None}
        for option, value in given.items():
            if value is not None:
                raise InputError(
                    f"{program} is exported already", f"{option} applies to models; leave it out"
                )
        return program
    dtype, backend = dtype or "fp32", backend or "xnnpack"
    artifacts = outdir / "artifacts" if outdir else None
    # Calibration inputs and kept modules are the user's own, like a model of theirs.
    own = not isinstance(model, str) or calibration or keep
    if not own and (found := current_export(str(model), dtype, backend, artifacts)):
        progress.stage(f"using {found}")
        return found
    what = f"exports {model if isinstance(model, str) else model.name}"
    with working_beside(what, waiting=progress.stage, needed=False):
        return export_model(
            model,
            dtype=dtype,
            backend=backend,
            outdir=artifacts,
            calibration=calibration,
            keep=keep,
            progress=progress,
        ).pte


def current_export(
    model: str, dtype: str | None, backend: str | None, artifacts: Path | None = None
) -> Path | None:
    """Return an earlier export of a registered model if a new one would be the same."""
    chosen, wanted = registry.choose(model), parse_format(dtype or "fp32")
    if chosen is None or wanted.kind == "own":
        return None
    folder = artifacts or Path(f"out_{chosen.file_name}") / "artifacts"
    pte = folder / f"{chosen.file_name}_{backend or 'xnnpack'}_{wanted.word()}.pte"
    return pte if _is_current(chosen, pte) else None


def _is_current(chosen: Chosen, pte: Path) -> bool:
    """Whether the export is complete, of the same variant, made with the installed versions, and newer than
    the model's source and the files it reads."""
    entry = registry.discover()[chosen.model]
    home = registry.home_of(entry)
    if home is None or entry.source != "kit":
        return False
    try:
        summary = read_export(pte)
        made = pte.stat().st_mtime
    except (OSError, ProfilingError):
        return False
    whole = files.sha256(pte) == summary.sha256 and summary.etrecord.is_file()
    same_tools = summary.versions == versions() and summary.seed == 0 and not summary.accuracy.real_inputs
    sources = [
        *chosen.files,
        *registry.sources_in(home),
        *registry.KIT.glob("*.py"),
        *registry.KIT.glob("*/*.py"),  # a model may use parts of another
        *Path(exporter.__file__).parent.glob("*.py"),
    ]
    usable = whole and not summary.accuracy.problem and summary.source == chosen.source
    return usable and same_tools and all(source.stat().st_mtime <= made for source in sources)


class Exporting(TypedDict):
    """Parameters of `find_or_export`."""

    dtype: str | None
    backend: str | None
    outdir: Path | None
    calibration: str | None
    keep: tuple[str, ...]


Lengths = Mapping[str, tuple[tuple[int, ...], ...]]
Values = Mapping[str, tuple[float, ...]]
"""What inputs are given, by their name or number."""

_UNASKED_EMULATION_S, _QUICK_EMULATION_S = 900.0, 20.0
QUICK = {"runs": 5, "warmup": 1, "rounds": EXACT_ROUNDS, "budget_s": 6.0}
"""What `quick` sets, where the user says nothing else."""


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure, and how much of it: the options of `sme2prof profile`. `outdir` is the folder that
    gets `artifacts` and `runs`. None is the usual value; one that is given and cannot be followed is refused
    or warned of, never dropped."""

    target: TargetChoice = field(default_factory=TargetChoice)
    dtype: str | None = None
    backend: str | None = None
    calibration: str | None = None
    keep: tuple[str, ...] = ()
    method: str | None = None
    lengths: Lengths = field(default_factory=dict)
    """Lengths (or all sizes) of inputs that were exported with variable ones; profiled one by one."""
    values: Values = field(default_factory=dict)
    """Values of inputs that are not made up."""
    runs: int | None = None
    warmup: int | None = None
    threads: tuple[int, ...] = (1,)
    mode: ScheduleMode | None = None
    rounds: int | None = None
    precision: float | None = None
    budget_s: float | None = None
    sample: bool = False
    ladder: bool = False
    quick: bool = False
    outdir: StrPath | None = None

    def __post_init__(self) -> None:
        if self.quick and self.precision is not None:
            short = f"quick makes {EXACT_ROUNDS} launches, too few to reach a precision"
            raise InputError(short, "leave --quick or --precision out")

    @property
    def home(self) -> Path | None:
        return None if self.outdir is None else as_path(self.outdir)

    def exporting(self, dtype: str | None) -> Exporting:
        """What `find_or_export` is asked for."""
        return {
            "dtype": dtype,
            "backend": self.backend,
            "outdir": self.home,
            "calibration": self.calibration,
            "keep": self.keep,
        }


@dataclass(frozen=True, slots=True)
class Case:
    """A method of a program and the inputs it is fed; what is not named is made up."""

    method: str = "forward"
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Values = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        return Inputs(sizes=dict(self.sizes), values=dict(self.values))

    @property
    def name(self) -> str:
        """`decode, input_pos 256`"""
        return ", ".join((self.method, *names.fed_in_words(self.sizes, self.values)))


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """What `profile` returns. In a notebook it shows the report of its main run.

    The run that answers, the one that gathered kernel evidence (the same if it can be), and why there.
    `evidence` is None when emulation was wanted and could not be had: the main run's report says why.
    `remarks` says which options had no effect.
    """

    program: Path
    plan: TargetPlan
    main: RunOutcome
    evidence: RunOutcome | None
    remarks: tuple[Diagnostic, ...] = ()
    case: Case = field(default_factory=Case)
    """What of the program ran."""

    def __repr__(self) -> str:
        proof = f"; evidence in {self.evidence.run_dir}" if len(self.outcomes) > 1 and self.evidence else ""
        return f"<ProfileOutcome {self.main.in_short}{proof}>"

    def _repr_html_(self) -> str:
        return self.main._repr_html_()

    @property
    def analysis(self) -> AnalysedRun | None:
        """Tables of the main run; None if it made no dump."""
        return self.main.analysis

    @property
    def verdict(self) -> tuple[str, ...]:
        """The opening sentences of the main run's report."""
        return self.main.verdict

    @property
    def report(self) -> Path:
        """The main run's page."""
        return self.main.report

    @property
    def warnings(self) -> tuple[WarningLine, ...]:
        """Warnings of the whole job: one line for each kind."""
        return warning_lines(self.all_remarks, self.main.run.series)

    @property
    def all_remarks(self) -> tuple[Diagnostic, ...]:
        return (*self.remarks, *(remark for outcome in self.outcomes for remark in outcome.data.remarks))

    @property
    def outcomes(self) -> tuple[RunOutcome, ...]:
        separate = self.evidence is not None and self.evidence is not self.main
        return (self.main, self.evidence) if separate and self.evidence else (self.main,)


def profile_one(
    model: str | NamedModel,
    options: ProfileOptions | None = None,
    run: RunOptions | None = None,
    *,
    progress: Progress | None = None,
) -> ProfileOutcome:
    """Profile `model` in one number format; `run` says what to do with runs that are there already."""
    options, progress = options or ProfileOptions(), progress or Silent()
    program = open_program(model, options, progress)
    cases = [one_case(program, options)]
    (outcome,) = profile_programs([program], options, run, cases=cases, progress=progress)
    return outcome


def one_case(program: Path, options: ProfileOptions) -> Case:
    """Return the method and length that `options` ask for; refuse several."""
    cases = cases_of(program, replace(options, method=one_method(program, options.method)))
    if len(cases) > 1:
        raise InputError("several lengths are several runs", "give one length")
    return cases[0]


def cases_of(program: Path, options: ProfileOptions) -> tuple[Case, ...]:
    """Return each method and length of `program` that `options` ask for."""
    found = []
    for method in choose_methods(program, options.method):
        lengths = [
            [sizes_for_length(program, method, name, length) for length in several]
            for name, several in options.lengths.items()
        ]
        found += [Case(method, dict(sizes), options.values) for sizes in itertools.product(*lengths)]
    return tuple(found)


def open_program(model: str | NamedModel, options: ProfileOptions, progress: Progress) -> Path:
    """Return the program of `model`, exported if needed; refuse a target or folder that cannot be used."""
    home = options.home
    if home is not None:
        check_folder(home)
    open_target(plan_targets(options.target).main)  # fail before anything is exported
    return find_or_export(model, **options.exporting(options.dtype), progress=progress)


@dataclass(frozen=True, slots=True)
class CasesOutcome:
    """One outcome for each method and length, and the page that puts several side by side."""

    outcomes: tuple[ProfileOutcome, ...]
    page: Path | None = None


def profile_cases(
    model: str | NamedModel,
    options: ProfileOptions | None = None,
    run: RunOptions | None = None,
    *,
    progress: Progress | None = None,
) -> CasesOutcome:
    """Profile the method that `options` names, or else each method of the program, at each length; they take
    turns."""
    options, progress = options or ProfileOptions(), progress or Silent()
    program = open_program(model, options, progress)
    cases = cases_of(program, options)
    outcomes = profile_programs([program], options, run, cases=cases, progress=progress)
    page = names.runs_folder(program, options.home) / names.COMBINED if len(cases) > 1 else None
    if page is not None:
        write_combined_report([outcome.main.run_dir for outcome in outcomes], page, progress=progress)
    return CasesOutcome(outcomes, page)


def profile_programs(
    programs: Sequence[Path],
    options: ProfileOptions,
    run: RunOptions | None = None,
    *,
    cases: Sequence[Case] = (Case(),),
    proven: int | None = None,
    progress: Progress | None = None,
) -> tuple[ProfileOutcome, ...]:
    """Profile `cases` of each of `programs`; if times are latencies, they take turns. Where another machine
    proves the kernels, it does so for the first `proven` only, if that is given."""
    run, progress = run or RunOptions(), progress or Silent()
    plan = plan_targets(options.target).shown_by(run.evidence)
    target, prover = open_target(plan.main), open_target(plan.evidence)
    unused = _without_effect(target, options)
    asked = [
        _Asked(program, case, names.run_home(program, options.home, case.method, case.inputs.file_words))
        for program in programs
        for case in cases
    ]
    for place in (target, prover):
        for each in asked:
            check_startable(each.home / place.place, resume=run.resume, force=run.force)

    def run_on(place: Target, asked: Sequence[_Asked]) -> tuple[RunOutcome, ...]:
        configs = [
            make_config(place, each.program, each.home / place.place, options, each.case) for each in asked
        ]
        given_up = replace(run, remarks=_given_up(place, options))
        return run_together(configs, place, given_up, progress=progress)

    mains = run_on(target, asked)
    outcomes: list[ProfileOutcome] = []
    for each, main in zip(asked, mains, strict=True):
        found = ProfileOutcome(each.program, plan, main, main, unused, each.case)
        if plan.evidence != plan.main and (proven is None or len(outcomes) < proven):
            try:
                _check_duration(each, options)
                (evidence,) = run_on(prover, [each])
            except SetupError as problem:
                # Latencies are valid without the evidence; the run records that it is missing.
                found = replace(found, main=_with_evidence(main, problem), evidence=None)
            else:
                found = replace(found, main=_with_evidence(main), evidence=evidence)
        outcomes.append(found)
    return tuple(outcomes)


@dataclass(frozen=True, slots=True)
class _Asked:
    program: Path
    case: Case
    home: Path


def _check_duration(asked: _Asked, options: ProfileOptions) -> None:
    """Avoid an hour of emulation for a user who asked only for latencies."""
    sides, most = (1, _QUICK_EMULATION_S) if options.quick else (2, _UNASKED_EMULATION_S)
    case = asked.case
    fed = feed(asked.program, case.method, case.inputs)
    seconds = sides * len(options.threads) * emulated_seconds(asked.program, case.method, fed.lengths)
    if seconds > most:
        if options.quick:
            skipped = f"--quick skips the emulation, about {duration(seconds)} here"
            raise SetupError(skipped, "leave --quick out")
        cure = "give a smaller input, or be ready to wait"
        raise SetupError(f"emulating this program takes about {duration(seconds)}", cure)


def make_config(
    target: Target, program: Path, root: Path, options: ProfileOptions, case: Case | None = None
) -> ProfileConfig:
    case = case or Case()
    wanted = NewConfig(
        program, target.platform, root, options.threads, method=case.method, inputs=case.inputs
    )
    asked = {name: getattr(options, name) for name in ABOUT_LATENCY}
    given = {name: value for name, value in asked.items() if value is not None}
    wanted = replace(wanted, sample=options.sample or None, **(QUICK if options.quick else {}) | given)
    only_on = options.quick and not target.timings_are_latency
    return make_pair_config(target, wanted, root, ladder=options.ladder, only_on=only_on)


def _given_up(target: Target, options: ProfileOptions) -> tuple[Diagnostic, ...]:
    """Return what `quick` costs, for the report."""
    if not options.quick or (options.ladder and not target.timings_are_latency):
        return ()
    cost = "does not compare outputs with SME2 on and off"
    if target.timings_are_latency:
        cost = "makes intervals wider"
    return (Diagnostic(None, "quick", f"--quick {cost}", "leave --quick out to get the full answer"),)


def _without_effect(target: Target, options: ProfileOptions) -> tuple[Diagnostic, ...]:
    """Return a remark for each option that matters only if latencies are measured."""
    if target.timings_are_latency:
        return ()
    return tuple(
        Diagnostic(
            None, "no_effect", f"--{name.removesuffix('_s')} {value} has no effect", why_once(target.name)
        )
        for name in ABOUT_LATENCY
        if (value := getattr(options, name)) is not None
    )


def _with_evidence(main: RunOutcome, problem: SetupError | None = None) -> RunOutcome:
    """Store the evidence from emulation, or why there is none, in the main run, and report it again."""
    assert main.run.manifest is not None
    with locked(main.run_dir):
        keep_evidence(main.run_dir, main.run.manifest, problem)
        return republish(main.run_dir, main.moved, main.analysis)


# Two programs that take turns on one machine, and the comparison of the two runs.

_EXPERIMENT = "program"
"""Experiment name of both programs: the same, so that equal thread counts are matched."""


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
    *,
    target: TargetChoice | None = None,
    threads: tuple[int, ...] = (1,),
    budget_s: float | None = None,
    method: str | None = None,
    lengths: Lengths | None = None,
    values: Values | None = None,
    outdir: Path | None = None,
    run: RunOptions | None = None,
    limit: float | None = None,
    fail_on: Iterable[Aspect] = (),
    progress: Progress | None = None,
) -> ProgramsCompared:
    """Measure both programs in the same launches and judge B against A: their only method, or the one that is
    chosen, at one length. The runs are kept in `outdir` (default `out_compare/<A>_vs_<B>`, with the case if
    one is chosen), one folder each, like any other runs."""
    run = run or RunOptions()
    programs = [find_or_export(str(path)) for path in (a, b)]
    chosen = ProfileOptions(method=method, lengths=lengths or {}, values=values or {})
    cases = [one_case(program, chosen) for program in programs]
    place = open_target(plan_targets(target or TargetChoice()).main)
    gates = asked_gates(limit, fail_on)
    if not place.timings_are_latency and (limit is not None or not gates):
        raise InputError(
            f"times on target {place.name} are not latencies: they cannot be compared",
            "compare kernels or structure instead (--fail-on-kernel-change, --fail-on-structure-change), or "
            "measure on an Arm machine; --target host compares on this CPU, which says nothing about Arm",
        )
    case_words = names.with_method(f"{a.stem}_vs_{b.stem}", method, cases[0].inputs.file_words)
    home = outdir or Path("out_compare") / case_words
    check_folder(home)
    configs = []
    for side, program, case in zip("ab", programs, cases, strict=True):
        root = home / side / place.place
        check_startable(root, resume=run.resume, force=run.force)
        raw = {
            "model": str(program.resolve()),
            "output_root": str(root.resolve()),
            "target": target_settings(place.choice),
            "experiments": [{"name": _EXPERIMENT, "threads": list(threads)}],
            "schedule": {"budget_s": budget_s} if budget_s is not None else {},
            "method": case.method,
            "inputs": case.inputs.model_dump(mode="json"),
        }
        configs.append(checked_config(raw, folder=root))
    ours, theirs = run_together(configs, place, run, progress=progress)
    found = compare(ours.run_dir, theirs.run_dir, limit=limit, fail_on=gates)
    found = replace(found, a=replace(found.a, name=str(a)), b=replace(found.b, name=str(b)))
    sides = {"A": ours.data, "B": theirs.data}
    remarks = (
        replace(remark, series=Series(side, remark.series.threads)) if remark.series else remark
        for side, data in sides.items()
        for remark in data.remarks
    )
    known = {Series(side, series.threads) for side, data in sides.items() for series in data.run.series}
    return ProgramsCompared(found, ours.run_dir, theirs.run_dir, home, warning_lines(remarks, known))
