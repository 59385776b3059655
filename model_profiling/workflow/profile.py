"""The whole job in one call: a model or a program in, analysed run directories out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from model_profiling.config import names
from model_profiling.config.names import under_either_name
from model_profiling.config.series import Diagnostic, WarningLine, warning_lines
from model_profiling.config.settings import Inputs, ProfileConfig, Schedule
from model_profiling.config.sweep import LADDER, OFF, ON
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError, SetupError
from model_profiling.core.files import as_path
from model_profiling.core.formatting import duration
from model_profiling.core.number_formats import parse_format
from model_profiling.core.stdio import current_progress
from model_profiling.export import exporter
from model_profiling.export.exporter import export_model, versions
from model_profiling.export.records import ExportResult, read_export
from model_profiling.export.rewrites import Optimize
from model_profiling.models import registry
from model_profiling.models.catalog import NamedModel
from model_profiling.report.data import ReportData
from model_profiling.report.tables import AnalysedRun
from model_profiling.runner.machine import MachineFacts
from model_profiling.runs.begin import check_folder, check_startable
from model_profiling.runs.feeding import feed, one_method, sizes_for_length
from model_profiling.runs.folders import locked
from model_profiling.runs.measure import measure_runs
from model_profiling.runs.records import read_evidence
from model_profiling.runs.schedule import emulated_seconds
from model_profiling.statistics.measure import EXACT_ROUNDS
from model_profiling.targets import Target, TargetChoice, TargetPlan, open_target, plan_targets
from model_profiling.targets.machine_lock import working_beside
from model_profiling.workflow.measure import (
    USUAL,
    RunOptions,
    RunOutcome,
    make_rung_config,
    publish,
    publish_proof,
    run_together,
    with_evidence,
)

Lengths = Mapping[str, tuple[int, ...]]
Values = Mapping[str, tuple[float, ...]]
"""What inputs are given, by their name or number."""

_UNASKED_EMULATION_S, _QUICK_EMULATION_S = 900.0, 20.0
QUICK = {"runs": 5, "warmup": 1, "rounds": EXACT_ROUNDS, "budget_s": 6.0}
"""What `quick` sets, where the user says nothing else."""


class ProfileOptions(Schedule):
    """What to measure, and how much of it: the options of `sme2prof profile`, those of a schedule among them.
    None is the usual value; one that is given and cannot be followed is refused or warned of, never
    dropped."""

    target: TargetChoice = TargetChoice()
    dtype: str | None = None
    backend: str | None = None
    calibration: str | None = None
    keep: tuple[str, ...] = ()
    optimize: Optimize = False
    method: str | None = None
    lengths: Lengths = Field(default_factory=dict)
    """The length (or all sizes) of inputs that were exported with a variable one."""
    values: Values = Field(default_factory=dict)
    """Values of inputs that are not made up."""
    runs: int = 10
    warmup: int = 3
    threads: tuple[int, ...] = (1,)
    """None: powers of two up to the number of fast cores, where latencies are measured."""
    ladder: bool = False
    quick: bool = False
    outdir: Annotated[Path | None, BeforeValidator(as_path)] = None
    """The folder that gets `artifacts` and `runs`."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, raw: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in raw.items() if value is not None}

    def given(self, names: Collection[str]) -> dict[str, Any]:
        """The settings among `names` that were given, or that `quick` sets."""
        usual = QUICK if self.quick else {}
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return {name: value for name, value in {**usual, **given}.items() if name in names}


# The program to profile: the .pte file that the user named, a current export, or a new export.


def find_or_export(model: str | NamedModel, options: ProfileOptions) -> Path:
    """Return the .pte of `model`. A registered model is exported again only if the result could differ; a
    user's own model is always exported, because its dependencies are unknown."""
    calibration, keep, optimize = options.calibration, options.keep, options.optimize
    if isinstance(model, str) and model.endswith(".pte"):
        program = under_either_name(Path(model))
        if not program.is_file():
            raise InputError(f"there is no program {program}", "correct the path, or name a model to export")
        how = {"--calibrate": calibration, "--keep": keep, "--optimize": optimize}
        for option, value in {"--dtype": options.dtype, "--backend": options.backend, **how}.items():
            if value:
                raise InputError(f"{program} is exported already", f"{option} is for models; leave it out")
        return program
    artifacts = options.outdir / "artifacts" if options.outdir else None
    # Calibration inputs, kept modules and a saved choice are the user's own, like a model of theirs.
    own = not isinstance(model, str) or calibration or keep or optimize
    if not own and (current := _current_export(str(model), options, artifacts)):
        current_progress().stage(f"using {current}")
        return current
    return export_with(model, options, artifacts).pte


def export_with(model: str | NamedModel, options: ProfileOptions, artifacts: Path | None) -> ExportResult:
    """Export `model` into `artifacts`, while nobody measures on this machine."""
    what = f"exports {model if isinstance(model, str) else model.name}"
    with working_beside(what):
        return export_model(
            model,
            dtype=options.dtype or "fp32",
            backend=options.backend or "xnnpack",
            outdir=artifacts,
            calibration=options.calibration,
            keep=options.keep,
            optimize=options.optimize,
        )


def _current_export(model: str, options: ProfileOptions, artifacts: Path | None) -> Path | None:
    """Return an earlier export of one of the kit's models if a new one would be the same: it is complete, of
    the same variant, made with the installed versions, and newer than all that it was made from."""
    chosen, wanted = registry.choose(model), parse_format(options.dtype or "fp32")
    if chosen is None or wanted.kind == "own":
        return None
    entry = registry.discover()[chosen.model]
    home = registry.home_of(entry)
    if home is None or entry.source != "kit":
        return None
    folder = artifacts or Path(f"out_{chosen.file_name}") / "artifacts"
    pte = folder / f"{chosen.file_name}_{options.backend or 'xnnpack'}_{wanted.word()}.pte"
    try:
        summary = read_export(pte)
        made = pte.stat().st_mtime
    except (OSError, ProfilingError):
        return None
    whole = files.sha256(pte) == summary.sha256 and summary.etrecord.is_file()
    same_tools = summary.versions == versions() and summary.seed == 0 and not summary.accuracy.real_inputs
    sources = [
        *(value for value in chosen.values.values() if isinstance(value, Path)),
        *home.rglob("*.py"),
        *registry.KIT.glob("*.py"),
        *registry.KIT.glob("*/*.py"),  # a model may use parts of another
        *Path(exporter.__file__).parent.glob("*.py"),
    ]
    usable = whole and not summary.accuracy.problem and summary.source == chosen.source
    newer = all(source.stat().st_mtime <= made for source in sources)
    return pte if usable and same_tools and newer else None


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """A method of a program and the inputs it is fed; what is not named is made up."""

    method: str = "forward"
    inputs: Inputs = field(default_factory=Inputs)


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
    evidence: ReportData | None
    remarks: tuple[Diagnostic, ...] = ()

    def __repr__(self) -> str:
        proof = f"; evidence in {self.evidence.run.path}" if len(self.runs) > 1 and self.evidence else ""
        return f"<ProfileOutcome {self.main.in_short}{proof}>"

    def _repr_markdown_(self) -> str:
        return self.main._repr_markdown_()

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
        return (*self.remarks, *(remark for run in self.runs for remark in run.remarks))

    @property
    def runs(self) -> tuple[ReportData, ...]:
        """The main run, and the one that proves its kernels if that is another."""
        separate = self.evidence is not None and self.evidence is not self.main.data
        return (self.main.data, self.evidence) if separate and self.evidence else (self.main.data,)


def profile_one(model: str | NamedModel, options: ProfileOptions, run: RunOptions = USUAL) -> ProfileOutcome:
    """Profile `model` in one number format; `run` says what to do with runs that are there already."""
    program = open_program(model, options)
    cases = [one_case(program, options)]
    (outcome,) = profile_programs([program], options, run, cases=cases)
    return outcome


def one_case(program: Path, options: ProfileOptions) -> ProgramCase:
    """Return the method and the sizes that `options` ask for; refuse a program with several methods."""
    method = one_method(program, options.method)
    sizes = [sizes_for_length(program, method, *length) for length in options.lengths.items()]
    return ProgramCase(method, Inputs(sizes=dict(sizes), values=dict(options.values)))


def open_program(model: str | NamedModel, options: ProfileOptions) -> Path:
    """Return the program of `model`, exported if needed; refuse a target or folder that cannot be used."""
    if options.outdir is not None:
        check_folder(options.outdir)
    open_target(plan_targets(options.target).main)  # fail before anything is exported
    return find_or_export(model, options)


def profile_programs(
    programs: Sequence[Path],
    options: ProfileOptions,
    run: RunOptions = USUAL,
    *,
    cases: Sequence[ProgramCase] = (ProgramCase(),),
    one_proof: bool = False,
) -> tuple[ProfileOutcome, ...]:
    """Profile `cases` of each of `programs`; if times are latencies, they take turns. Where another machine
    proves the kernels, each gets its own proof, or all that of the first (`one_proof`)."""
    plan = plan_targets(options.target).shown_by(run.evidence)
    target, prover = open_target(plan.main), open_target(plan.evidence)
    if not options.threads and not target.timings_are_latency:
        raise InputError(
            f"times on target {target.name} are not latencies: they do not say how many threads to use",
            "name the number of threads, or measure on an Arm machine",
        )
    chosen = [(program, case) for program in programs for case in cases]
    homes = [
        names.run_home(program, options.outdir, case.method, case.inputs.file_words)
        for program, case in chosen
    ]
    for place in (target, prover):
        for home in homes:
            check_startable(home / place.place)
    main_run, proving_run = (replace(run, remarks=_given_up(place, options)) for place in (target, prover))
    configs = [
        make_config(target, program, home / target.place, options, case)
        for (program, case), home in zip(chosen, homes, strict=True)
    ]
    if plan.evidence == plan.main:
        unused: tuple[Diagnostic, ...] = ()
        if options.budget_s is not None and not target.timings_are_latency:
            why = f"times on target {target.name} are not latencies, so each experiment runs once"
            unused = (Diagnostic(None, "no_effect", f"--budget {options.budget_s:g} has no effect", why),)
        mains = run_together(configs, target, main_run)
        return tuple(
            ProfileOutcome(program, plan, main, main.data, unused)
            for (program, _), main in zip(chosen, mains, strict=True)
        )
    main_run = with_evidence(main_run, configs, target)
    measured = measure_runs(configs, target, main_run)
    outcomes: list[ProfileOutcome] = []
    for (program, case), home, measured_run in zip(chosen, homes, measured, strict=True):
        evidence, missing, proof = None, None, None
        with contextlib.ExitStack() as held:
            if one_proof and outcomes:
                proof = read_evidence(outcomes[0].main.run_dir)
            else:
                try:
                    _check_duration(program, case, options)
                    config = make_config(prover, program, home / prover.place, options, case)
                    (proving,) = measure_runs([config], prover, proving_run, held)
                    evidence = publish_proof(proving)
                except SetupError as problem:
                    # Latencies are valid without the evidence; the run records that it is missing.
                    missing = problem
            with locked(measured_run.place.path):
                main = publish(measured_run, main_run, missing=missing, proof=proof)
        outcomes.append(ProfileOutcome(program, plan, main, evidence))
    return tuple(outcomes)


def _check_duration(program: Path, case: ProgramCase, options: ProfileOptions) -> None:
    """Avoid an hour of emulation for a user who asked only for latencies."""
    sides, most = (1, _QUICK_EMULATION_S) if options.quick else (2, _UNASKED_EMULATION_S)
    fed = feed(program, case.method, case.inputs)
    seconds = sides * max(1, len(options.threads)) * emulated_seconds(program, case.method, fed.lengths)
    if seconds > most:
        if options.quick:
            skipped = f"--quick skips the emulation, about {duration(seconds)} here"
            raise SetupError(skipped, "leave --quick out")
        cure = "give a smaller input, or be ready to wait"
        raise SetupError(f"emulating this program takes about {duration(seconds)}", cure)


def make_config(
    target: Target, program: Path, root: Path, options: ProfileOptions, case: ProgramCase | None = None
) -> ProfileConfig:
    """Return the config for one target: SME2 on and off, on alone, or a ladder."""
    case, repeats = case or ProgramCase(), options.given(("runs", "warmup"))
    kinds = (ON,) if options.quick and not target.timings_are_latency else (ON, OFF)
    threads = options.threads
    if not threads:  # powers of two up to the number of fast cores
        facts = target.facts() if target.timings_are_latency else MachineFacts()
        cores = facts.fast_cores or facts.cores or 1
        threads = tuple(dict.fromkeys((*(1 << place for place in range(cores.bit_length())), cores)))
    return make_rung_config(
        target,
        program,
        root,
        dict.fromkeys((LADDER,) if options.ladder else kinds, ()),
        Schedule(**options.given(Schedule.model_fields)),
        threads=threads,
        runs=repeats.get("runs", options.runs),
        warmup=repeats.get("warmup", options.warmup),
        method=case.method,
        inputs=case.inputs,
    )


def _given_up(target: Target, options: ProfileOptions) -> tuple[Diagnostic, ...]:
    """Return what `quick` costs, for the report."""
    if not options.quick or (options.ladder and not target.timings_are_latency):
        return ()
    cost = "does not compare outputs with SME2 on and off"
    if target.timings_are_latency:
        cost = "makes intervals wider"
    return (Diagnostic(None, "quick", f"--quick {cost}", "leave --quick out to get the full answer"),)
