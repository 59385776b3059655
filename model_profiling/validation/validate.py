"""Runs all checks of a run directory, or of a pipeline from its config on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.reading import check_config, config_warnings, load_config
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.hints import sme2prof
from model_profiling.core.records import Check, CheckList, check_lines
from model_profiling.core.safe_read import is_there
from model_profiling.core.stdio import Progress, Silent
from model_profiling.runs.folders import no_run
from model_profiling.validation.checks import (
    ABOUT_ANY,
    ABOUT_DUMPS,
    ABOUT_EARLIER_RUNS,
    ABOUT_RUNS,
    CheckedRun,
    Question,
)


@dataclass(frozen=True, slots=True)
class Validation(CheckList):
    checked: str
    """The run directory, or the config."""

    def as_text(self) -> str:
        verdict = f"not valid: {self.failed}" if self.failed else "valid"
        return "\n".join([*check_lines(self.checks), "", verdict])


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


def _questions(run: CheckedRun) -> Sequence[Question]:
    try:
        manifest = run.manifest
    except ProfilingError:
        if not is_there(run.path / names.MANIFEST):
            raise  # not a run at all
        return ABOUT_ANY  # its first check reports the problem; nothing else can be trusted
    about_run = () if manifest is None else ABOUT_EARLIER_RUNS if manifest.version_0 else ABOUT_RUNS
    return (*ABOUT_ANY, *about_run, *ABOUT_DUMPS)


# A pipeline: what its config needs, where results go, and the results.

_PARTS = {"model": "model", "experiments": "runners", "inputs": "inputs", "output_root": "output directory"}
"""The part of a pipeline that a missing file belongs to, by the start of the setting that names it."""


def validate_pipeline(path: Path, *, progress: Progress | None = None) -> Validation:
    """Check what the config in `path` needs and, if it has run already, its results."""
    if not path.is_file():
        raise InputError(
            f"there is no file {path}", ("give a config file, or write one: sme2prof config new")
        )
    progress = progress or Silent()
    progress.stage("checking the config")
    if wrong := check_config(path, files=False):
        failed = tuple(Check("config", "fail", problem.text, problem.fix) for problem in wrong)
        return Validation(failed, str(path))
    config = load_config(path, files=False)
    counts = f"{plural(len(config.experiments), 'experiment')}, {plural(len(config.pairs), 'comparison')}"
    checks = [
        Check("config", "pass", counts),
        *(Check("config", "optional", text) for text in config_warnings(config)),
        *_files(config, path),
        *_results(config, path, progress),
    ]
    return Validation(tuple(checks), str(path))


def _files(config: ProfileConfig, path: Path) -> Iterator[Check]:
    """What each part of the config names is there, or a failed check for each missing file."""
    there: dict[str, list[object]] = {
        "model": [config.model],
        "runners": [each.runner or "the kit's own, built when the run starts" for each in config.experiments],
        "inputs": list(config.inputs.files),
        "output directory": [config.output_root],
    }
    missing = check_config(path)
    for start, part in _PARTS.items():
        problems = [problem for problem in missing if problem.where.startswith(start)]
        yield from (Check(part, "fail", problem.text, problem.fix) for problem in problems)
        if there[part] and not problems:
            yield Check(part, "pass", ", ".join(dict.fromkeys(map(str, there[part]))))


def _results(config: ProfileConfig, path: Path, progress: Progress) -> Iterator[Check]:
    run_dir = config.output_root
    if not (run_dir / names.MANIFEST).is_file():
        yield Check("results", "skipped", f"none yet: {sme2prof('run', str(path))}")
        return
    for check in validate(run_dir, progress=progress).checks:
        yield replace(check, name=f"results: {check.name}")
