"""Reads a config file, checks all that can be known before anything runs, and resolves its paths.

Every problem is one line: the file, the field's path, what is wrong, what to write instead. Relative paths
are looked up in the config's folder, then in the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from model_profiling.config.checks import file_problems, same_binary_problems, setting_problems, translate
from model_profiling.config.problems import Problem, is_sweep, problems_of, read_object, require
from model_profiling.config.settings import (
    BUILTIN,
    Experiment,
    ProfileConfig,
    Schedule,
    Side,
    target_settings,
)
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.core.stdio import under_either_name
from model_profiling.run.remarks import Diagnostic, warning_lines
from model_profiling.run.series import Pair, Series, make_pair, natural_pairs
from model_profiling.runner.machine import TargetChoice

# Re-exported for other packages.
__all__ = ["Experiment", "ProfileConfig", "Schedule"]


def load_config(path: Path, *, files: bool = True, builtin: bool = False) -> ProfileConfig:
    """Load a config with absolute paths and nothing left to infer; raise InputError on the first problem.
    Without `files`, model and runners need not exist; `builtin` replaces the runners by the kit's own."""
    return require(*_load(path, files=files, builtin=builtin), path)


def check_config(path: Path, *, files: bool = True) -> tuple[Problem, ...]:
    return _load(path, files=files)[1]


def parse_config(
    raw: Mapping[str, object], *, folder: Path, files: bool = True, builtin: bool = False
) -> tuple[ProfileConfig | None, tuple[Problem, ...]]:
    """Parse a config's JSON object, as if from a file in `folder`; return it and its problems."""
    cleaned, otherwise = translate(raw)
    try:
        written = ProfileConfig.model_validate(cleaned)
    except ValidationError as error:
        return None, problems_of(error, ProfileConfig)
    if problems := tuple(setting_problems(written)):
        return None, problems
    written._said_otherwise = otherwise
    written = _with_own_runner(written) if builtin else written
    config = _resolved(written, folder.resolve())
    if problems := tuple(same_binary_problems(config.experiments)):
        return None, problems
    return config, tuple(file_problems(config, written, folder.resolve())) if files else ()


def checked_config(raw: Mapping[str, object], *, folder: Path) -> ProfileConfig:
    """Parse a config; raise InputError on the first problem."""
    return require(*parse_config(raw, folder=folder))


def on_target(config: ProfileConfig, choice: TargetChoice) -> ProfileConfig:
    """`config` on the machine of `choice`; refuse a config for another kind of machine."""
    written = config.target.choice
    if written.kind not in ("auto", choice.kind):
        raise InputError(
            f"this config is for target {written.kind}, not {choice.kind}",
            "use sme2prof run without --target",
        )
    named = target_settings(choice)
    devices = {"device", "remote", "host"}
    # A device named in `choice` replaces the config's, however that one is named.
    dropped = dict.fromkeys(devices) if devices & set(named) else {}
    return config.model_copy(update={"target": config.target.model_copy(update={**dropped, **named})})


def series_of(experiment: Experiment) -> tuple[Series, ...]:
    return tuple(Series(experiment.name, threads) for threads in experiment.threads)


def pairs(config: ProfileConfig) -> tuple[Pair, ...]:
    """The pairs to compare: those asked for, or each SME2-off experiment with its SME2-on counterpart."""
    if not config.analysis.compare_pairs:
        timing = [experiment for experiment in config.experiments if experiment.mode == "timing"]
        return natural_pairs((series, each.sme2) for each in timing for series in series_of(each))
    by_name = {experiment.name: experiment for experiment in config.experiments}

    def series(side: Side) -> Series:
        return Series(side.experiment, side.threads or by_name[side.experiment].threads[0])

    wanted = config.analysis.compare_pairs
    return tuple(make_pair(series(pair.baseline), series(pair.candidate), pair.label) for pair in wanted)


def config_warnings(config: ProfileConfig) -> tuple[str, ...]:
    """What is allowed but probably not intended, one line per kind."""
    return tuple(line.text for line in warning_lines(_unwise(config)))


def _unwise(config: ProfileConfig) -> Iterator[Diagnostic]:
    yield from config.said_otherwise
    timing = [experiment for experiment in config.experiments if experiment.mode == "timing"]
    if timing and (rounds := config.schedule.most_rounds) < 6:
        seen = f"schedule.rounds is {rounds}: fewer than 6 can only show large differences"
        yield Diagnostic(None, "rounds", seen)
    for experiment in timing:
        whose = Series(experiment.name)
        if experiment.runs < 5:
            few = f"only {plural(experiment.runs, 'run')} in each process"
            yield Diagnostic(whose, "runs", few, "10 or more are better")
        if experiment.warmup == 0:
            yield Diagnostic(whose, "warmup", "without warm-up the first, slow inferences are measured")
    for experiment in config.experiments:
        most, cpus = max(experiment.threads), len(experiment.cpu_affinity)
        by_number = all(isinstance(cpu, int) for cpu in experiment.cpu_affinity)
        if 0 < cpus < most and by_number:
            seen = f"{most} threads share {plural(cpus, 'CPU')} of cpu_affinity"
            yield Diagnostic(Series(experiment.name), "threads", seen)
    if timing and not pairs(config):
        seen = "nothing will be compared: no SME2-off experiment has an SME2-on one like it"
        yield Diagnostic(None, "no_pair", seen)


def _load(
    path: Path, *, files: bool, builtin: bool = False
) -> tuple[ProfileConfig | None, tuple[Problem, ...]]:
    raw = read_object(path)
    if isinstance(raw, Problem):
        return None, (raw,)
    if is_sweep(raw):
        raise InputError(f"{path} is a sweep, not the config of one run", f"use `sme2prof sweep {path}`")
    return parse_config(raw, folder=path.parent, files=files, builtin=builtin)


def _with_own_runner(config: ProfileConfig) -> ProfileConfig:
    """`config` with the kit's own runner, switched as the replaced runners were built."""
    experiments = tuple(
        each.model_copy(update={"runner_path": BUILTIN, "sme2": each.side}) for each in config.experiments
    )
    return config.model_copy(update={"experiments": experiments})


def _resolved(config: ProfileConfig, folder: Path) -> ProfileConfig:
    """`config` with absolute paths and the switch of every experiment."""
    experiments = []
    for experiment in config.experiments:
        runner = experiment.runner and str(_runner(experiment.runner, folder))
        update = {"sme2": experiment.side, "runner_path": runner or BUILTIN}
        experiments.append(experiment.model_copy(update=update))
    files = tuple(found_path(file, folder) for file in config.inputs.files)
    return config.model_copy(
        update={
            "model": found_path(config.model, folder),
            "output_root": _absolute(_start_of_outputs(config, folder) / config.output_root),
            "experiments": tuple(experiments),
            "inputs": config.inputs.model_copy(update={"files": files}),
        }
    )


def _start_of_outputs(config: ProfileConfig, folder: Path) -> Path:
    """Where a relative output_root starts: the folder in which the model was found. Results can outlive their
    model: without it, the folder that holds the run directory, else the config's folder."""
    for wanted in (config.model, config.output_root):
        for start in (folder, Path.cwd()):
            if under_either_name(start / wanted).exists():
                return start
    return folder


def found_path(path: Path, folder: Path) -> Path:
    """`path` in the config's folder or the working folder; in the former if it exists in neither."""
    places = [under_either_name(_absolute(start / path)) for start in (folder, Path.cwd())]
    return next((place for place in places if place.exists()), places[0])


def _runner(path: Path, folder: Path) -> Path:
    """A runner's path may also start in the ExecuTorch checkout, as in the earlier kit."""
    found = found_path(path, folder)
    inside = found if found.exists() else found_path(Path("executorch") / path, folder)
    return inside if inside.exists() else found


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path))
