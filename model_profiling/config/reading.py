"""Reads a config file, checks everything that can be known before anything runs, and resolves its paths.

Every problem is one line: the file, the field's path, what is wrong, what to write instead. Relative paths
are looked for in the config's folder first, then in the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from model_profiling.config.checks import (
    file_problems,
    setting_problems,
    switch_in_name,
    without_switch,
)
from model_profiling.config.json_text import read_object
from model_profiling.config.problems import Problem, problems_of
from model_profiling.config.settings import (
    BUILTIN,
    AnalysisSettings,
    ComparePair,
    Experiment,
    Inputs,
    ProfileConfig,
    Schedule,
    Side,
    TargetSettings,
)
from model_profiling.errors import InputError
from model_profiling.program_name import under_either_name
from model_profiling.targets import why_not_yet
from model_profiling.wording import plural

__all__ = [
    "BUILTIN",
    "AnalysisSettings",
    "ComparePair",
    "Experiment",
    "Inputs",
    "Pair",
    "ProfileConfig",
    "Schedule",
    "Side",
    "TargetSettings",
    "check_config",
    "config_warnings",
    "load_config",
    "pairs",
    "parse_config",
]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two measurements to compare, fully named."""

    baseline: str
    baseline_threads: int
    candidate: str
    candidate_threads: int
    label: str


def load_config(path: Path, *, files: bool = True) -> ProfileConfig:
    """The config in `path` with absolute paths and nothing left to infer; raises InputError on the first
    problem. `files=False` leaves out whether the model and the runners exist.
    """
    config, problems = _load(path, files=files)
    if config is None or problems:
        first = problems[0]
        more = f" (1 of {len(problems)} problems, `sme2prof config check` lists all)" if problems[1:] else ""
        raise InputError(f"{path}: {first.text}{more}", first.fix)
    return config


def check_config(path: Path, *, files: bool = True) -> tuple[Problem, ...]:
    """Everything that is wrong with the config in `path`; empty when nothing is."""
    return _load(path, files=files)[1]


def parse_config(
    raw: Mapping[str, object], *, folder: Path, files: bool = True
) -> tuple[ProfileConfig | None, tuple[Problem, ...]]:
    """A config from its JSON object, as if written in a file in `folder`, and what is wrong with it."""
    cleaned = {key: value for key, value in raw.items() if key != "$schema"}
    try:
        written = ProfileConfig.model_validate(cleaned)
    except ValidationError as error:
        return None, problems_of(error, cleaned)
    if problems := tuple(setting_problems(written)):
        return None, problems
    config = _resolved(_with_switches(written), folder.resolve())
    return config, tuple(file_problems(config, written, folder.resolve())) if files else ()


def pairs(config: ProfileConfig) -> tuple[Pair, ...]:
    """What is compared: the pairs asked for, or each SME2-off experiment with the SME2-on one like it."""
    by_name = {experiment.name: experiment for experiment in config.experiments}
    if not config.analysis.compare_pairs:
        return tuple(_natural_pairs(config.experiments))
    asked = []
    for pair in config.analysis.compare_pairs:
        before = pair.baseline.threads or by_name[pair.baseline.experiment].threads[0]
        after = pair.candidate.threads or by_name[pair.candidate.experiment].threads[0]
        asked.append(_pair(pair.baseline.experiment, before, pair.candidate.experiment, after, pair.label))
    return tuple(asked)


def config_warnings(config: ProfileConfig) -> tuple[str, ...]:
    """What is allowed but probably not meant."""
    found = []
    if missing := why_not_yet(config.target.choice):
        found.append(f"{missing}; this config cannot be run until it is")
    timing = [experiment for experiment in config.experiments if experiment.mode == "timing"]
    if timing and config.schedule.rounds < 6:
        found.append(
            f"schedule.rounds is {config.schedule.rounds}: fewer than 6 can only show large differences"
        )
    for experiment in timing:
        if experiment.runs < 5:
            found.append(
                f"{experiment.name}: only {plural(experiment.runs, 'run')} in each process;"
                " 10 or more are better"
            )
        if experiment.warmup == 0:
            found.append(f"{experiment.name}: without warm-up the first, slow inferences are measured")
    for experiment in config.experiments:
        if experiment.cpu_affinity and max(experiment.threads) > len(experiment.cpu_affinity):
            found.append(
                f"{experiment.name}: {max(experiment.threads)} threads share "
                f"{plural(len(experiment.cpu_affinity), 'CPU')} of cpu_affinity"
            )
    if timing and not pairs(config):
        found.append("nothing will be compared: no SME2-off experiment has an SME2-on one like it")
    return tuple(found)


def _load(path: Path, *, files: bool) -> tuple[ProfileConfig | None, tuple[Problem, ...]]:
    raw = read_object(path)
    if isinstance(raw, Problem):
        return None, (raw,)
    return parse_config(raw, folder=path.parent, files=files)


def _with_switches(config: ProfileConfig) -> ProfileConfig:
    experiments = tuple(
        experiment
        if experiment.sme2
        else experiment.model_copy(
            update={"sme2": switch_in_name(experiment.runner_path) or switch_in_name(experiment.name) or "on"}
        )
        for experiment in config.experiments
    )
    return config.model_copy(update={"experiments": experiments})


def _resolved(config: ProfileConfig, folder: Path) -> ProfileConfig:
    experiments = tuple(
        one if one.runner is None else one.model_copy(update={"runner_path": str(_found(one.runner, folder))})
        for one in config.experiments
    )
    files = tuple(_found(file, folder) for file in config.inputs.files)
    start = _start_of_outputs(config, folder)
    return config.model_copy(
        update={
            "model": _found(config.model, folder),
            "output_root": _absolute(start / config.output_root),
            "experiments": experiments,
            "inputs": config.inputs.model_copy(update={"files": files}),
        }
    )


def _start_of_outputs(config: ProfileConfig, folder: Path) -> Path:
    """Where a relative output_root starts: where the model was found. Results can outlive their model, so
    without one it is where the run directory already lies, or else the config's folder.
    """
    for wanted in (config.model, config.output_root):
        for start in (folder, Path.cwd()):
            if under_either_name(start / wanted).exists():
                return start
    return folder


def _found(path: Path, folder: Path) -> Path:
    """`path` in the config's folder, or else in the working folder; the first when it is in neither."""
    places = [under_either_name(_absolute(start / path)) for start in (folder, Path.cwd())]
    return next((place for place in places if place.exists()), places[0])


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _natural_pairs(experiments: tuple[Experiment, ...]) -> Iterator[Pair]:
    timing = [one for one in experiments if one.mode == "timing"]
    for off in (one for one in timing if one.sme2 == "off"):
        for on in (one for one in timing if one.sme2 == "on"):
            alike = without_switch(off.name) == without_switch(on.name)
            if alike or len(timing) == 2:
                for threads in off.threads:
                    if threads in on.threads:
                        yield _pair(off.name, threads, on.name, threads, None)


def _pair(before: str, before_threads: int, after: str, after_threads: int, label: str | None) -> Pair:
    same = f"t{before_threads}" if before_threads == after_threads else f"t{before_threads}, t{after_threads}"
    return Pair(before, before_threads, after, after_threads, label or f"{after} vs {before} ({same})")
