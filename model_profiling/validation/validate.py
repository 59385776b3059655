"""Runs all checks of a run directory, or of a pipeline from its config on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.problems import Problem
from model_profiling.config.reading import check_config, config_warnings, load_config, pairs
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.checks import Check, CheckList, check_lines
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import plural, size
from model_profiling.core.hints import sme2prof
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.safe_read import is_there
from model_profiling.runner.build import runner_check
from model_profiling.runs.folders import no_run
from model_profiling.validation import figures, structure
from model_profiling.validation.structure import CheckedRun, Question


class _Verdict(CheckList):
    __slots__ = ()

    def as_text(self) -> str:
        verdict = f"not valid: {self.failed}" if self.failed else "valid"
        return "\n".join([*check_lines(self.checks), "", verdict])


@dataclass(frozen=True, slots=True)
class Validation(_Verdict):
    run_dir: str


@dataclass(frozen=True, slots=True)
class PipelineValidation(_Verdict):
    config: str


# In the order in which a person would look: is it complete, is it what it says, do the figures follow.
_ABOUT_ANY = (structure.manifest_parses, structure.json_files)
_ABOUT_RUNS = (
    structure.is_finished,
    structure.files_exist,
    structure.program_matches,
    structure.same_program,
    figures.latencies_match,
    figures.comparisons_follow,
    figures.kernels_fit_the_switch,
    figures.outputs_agree,
)
_ABOUT_VERSION_0 = (structure.files_exist, structure.same_program, figures.kernels_fit_the_switch)
_ABOUT_DUMPS = (
    structure.dumps_parse,
    structure.dumps_close,
    figures.summary_matches,
    figures.csv_files_match,
)


def validate(run_dir: str | Path, *, progress: Progress | None = None) -> Validation:
    """Check the run in `run_dir`; what cannot be read is a failed check, never an exception. Without a
    manifest only the dumps are checked; a run of the earlier kit (version 0) promises its files, too."""
    place = Path(run_dir)
    if not place.is_dir():
        raise no_run(place)
    run = CheckedRun(place)
    questions = _questions(run)
    progress = progress or Silent()
    progress.stage("checking the run")
    checks: list[Check] = []
    for done, question in enumerate(questions):
        progress.advance(done, len(questions), question.name)
        checks.append(question(run))
    return Validation(tuple(checks), str(place))


def _questions(run: CheckedRun) -> tuple[Question, ...]:
    try:
        manifest = run.manifest
    except ProfilingError:
        if not is_there(run.path / names.MANIFEST):
            raise  # not a run at all
        return _ABOUT_ANY  # its first check reports the problem; nothing else can be trusted
    about_run = () if manifest is None else _ABOUT_VERSION_0 if manifest.version_0 else _ABOUT_RUNS
    return (*_ABOUT_ANY, *about_run, *_ABOUT_DUMPS)


# A pipeline: what its config needs, where results go, and the results.

_PARTS = {"model": "model", "experiments": "runners", "inputs": "inputs", "output_root": "output directory"}
"""The part of a pipeline that a missing file belongs to, by the start of the setting that names it."""


def validate_pipeline(path: Path, *, progress: Progress | None = None) -> PipelineValidation:
    """Check what the config in `path` needs and, if it has run already, its results."""
    if not path.is_file():
        raise InputError(
            f"there is no file {path}", ("give a config file, or write one: sme2prof config new")
        )
    progress = progress or Silent()
    progress.stage("checking the config")
    wrong = check_config(path, files=False)
    if wrong:
        return PipelineValidation(
            tuple(Check("config", "fail", problem.text, problem.fix) for problem in wrong), str(path)
        )
    config = load_config(path, files=False)
    counts = f"{plural(len(config.experiments), 'experiment')}, {plural(len(pairs(config)), 'comparison')}"
    checks = [
        Check("config", "pass", counts),
        *(Check("config", "optional", text) for text in config_warnings(config)),
        *_files(config, check_config(path)),
        *_results(config, path, progress),
    ]
    return PipelineValidation(tuple(checks), str(path))


def _files(config: ProfileConfig, problems: tuple[Problem, ...]) -> Iterator[Check]:
    """One check per part of what the config names, and one per missing file."""
    missing: dict[str, list[Problem]] = {}
    for problem in problems:
        part = next(name for start, name in _PARTS.items() if problem.where.startswith(start))
        missing.setdefault(part, []).append(problem)
    for part in dict.fromkeys(_PARTS.values()):
        for problem in missing.get(part, ()):
            yield Check(part, "fail", problem.text, problem.fix)
        if part not in missing:
            yield from _present(part, config)


def _present(part: str, config: ProfileConfig) -> Iterator[Check]:
    if part == "model":
        yield Check(part, "pass", f"{config.model} ({size(config.model.stat().st_size)})")
        if not Path(f"{config.model}.etrecord").is_file():
            without = "no .etrecord beside it, so operators have no source lines"
            yield Check(part, "optional", without, "export it again (sme2prof export)")
    elif part == "runners":
        runners = dict.fromkeys(experiment.runner for experiment in config.experiments)
        yield from (Check(part, "pass", str(runner)) for runner in runners if runner)
        if None in runners:
            here = config.target.name in ("auto", "host")
            later = "the kit's own, built for the target when the run starts"
            yield replace(runner_check(), name=part) if here else Check(part, "pass", later)
    elif part == "inputs" and config.inputs.files:
        yield Check(part, "pass", plural(len(config.inputs.files), "file"))
    elif part == "output directory":
        state = "is there" if config.output_root.is_dir() else "will be created"
        yield Check(part, "pass", f"{config.output_root} {state}")


def _results(config: ProfileConfig, path: Path, progress: Progress) -> Iterator[Check]:
    run_dir = config.output_root
    if not (run_dir / names.MANIFEST).is_file():
        yield Check("results", "skipped", f"none yet: {sme2prof('run', str(path))}")
        return
    for check in validate(run_dir, progress=progress).checks:
        yield replace(check, name=f"results: {check.name}")
