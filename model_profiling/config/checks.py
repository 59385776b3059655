"""Checks a config's settings against each other and against the files they name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from model_profiling.config.problems import Problem
from model_profiling.config.settings import (
    MOST_SERIES,
    Experiment,
    ProfileConfig,
    Schedule,
    Side,
    TargetSettings,
)
from model_profiling.core.formatting import did_you_mean, plural
from model_profiling.core.hints import build_runners
from model_profiling.run.remarks import Diagnostic
from model_profiling.run.series import switch_in_name

MOST_PROCESSES = 200_000
"""In all rounds together; days of measuring."""


def setting_problems(config: ProfileConfig) -> Iterator[Problem]:
    """Settings that contradict each other, in the order of the file."""
    seen: dict[str, int] = {}
    for place, experiment in enumerate(config.experiments):
        where = f"experiments[{place}]"
        # On most Macs, folder names that differ only in case are the same folder.
        first = seen.setdefault(experiment.name.lower(), place)
        if first != place:
            same = f"is {experiment.name!r}, like experiments[{first}]"
            yield Problem(f"{where}.name", same, "give every experiment its own name")
        yield from _switch_problems(experiment, where)
    yield from _target_problems(config.target)
    yield from schedule_problems(config.schedule)
    yield from _count_problems(config)
    yield from _pair_problems(config)


def schedule_problems(schedule: Schedule) -> Iterator[Problem]:
    if schedule.precision is not None and schedule.min_rounds > schedule.most_rounds:
        what = f"is {schedule.min_rounds}, more than the {plural(schedule.most_rounds, 'round')}"
        yield Problem("schedule.min_rounds", what, "raise rounds or lower min_rounds")


def _count_problems(config: ProfileConfig) -> Iterator[Problem]:
    """Refuse more than can be measured: every series, and every process of every round, is held in memory."""
    rounds, series = config.schedule.most_rounds, sum(len(each.threads) for each in config.experiments)
    if series > MOST_SERIES:
        fix = f"use at most {MOST_SERIES}, or several configs"
        yield Problem("experiments", f"come to {series} with their thread counts", fix)
    elif series * rounds > MOST_PROCESSES:
        fix = f"use {MOST_PROCESSES // series} or less; `precision` ends a run when enough is known"
        yield Problem("schedule.rounds", f"is {rounds}, which is {series * rounds} processes", fix)


def _switch_problems(experiment: Experiment, where: str) -> Iterator[Problem]:
    for field, text in (("runner_path", experiment.runner_path), ("name", experiment.name)):
        said = switch_in_name(text)
        if experiment.sme2 and said and said != experiment.sme2:
            what = f'is "{experiment.sme2}", but {field} {text!r} says {said}'
            yield Problem(f"{where}.sme2", what, f'set sme2 to "{said}" or change {field}')
    if experiment.sme2 == "on" and {"sme2", "sme"} & set(experiment.disable):
        fix = 'set sme2 to "off" or disable less'
        yield Problem(f"{where}.disable", 'switches SME2 off while sme2 is "on"', fix)
    if experiment.runner is not None and experiment.disable:
        fix = 'set runner_path to "builtin" or drop disable'
        yield Problem(f"{where}.disable", "only the kit's own runner can switch features off", fix)


def same_binary_problems(experiments: tuple[Experiment, ...]) -> Iterator[Problem]:
    """On and off with one stock runner would measure the same code twice. Needs resolved experiments: the
    side may come from a name alone, and two paths may lead to one file."""
    binaries = [experiment.runner and experiment.runner.resolve() for experiment in experiments]
    on = {binary for experiment, binary in zip(experiments, binaries, strict=True) if experiment.side == "on"}
    for place, (experiment, binary) in enumerate(zip(experiments, binaries, strict=True)):
        if experiment.side == "off" and binary is not None and binary in on:
            what = "is off, but an experiment with SME2 on uses the same runner, which has no switch"
            fix = 'set runner_path to "builtin", or to a runner built without SME2'
            yield Problem(f"experiments[{place}].sme2", what, fix)


def _pair_problems(config: ProfileConfig) -> Iterator[Problem]:
    by_name = {experiment.name: experiment for experiment in config.experiments}
    labels: set[str] = set()
    for place, pair in enumerate(config.analysis.compare_pairs):
        where = f"analysis.compare_pairs[{place}]"
        found = [
            *_side_problems(pair.baseline, by_name, f"{where}.baseline"),
            *_side_problems(pair.candidate, by_name, f"{where}.candidate"),
        ]
        yield from found
        if not found and pair.baseline == pair.candidate:
            yield Problem(where, "compares an experiment with itself", "name two different ones")
        if pair.label is not None and pair.label in labels:
            again = f"is {pair.label!r} a second time"
            yield Problem(f"{where}.label", again, "give every pair its own label")
        labels.add(pair.label or "")


def _side_problems(side: Side, by_name: Mapping[str, Experiment], where: str) -> Iterator[Problem]:
    known = by_name.get(side.experiment)
    if known is None:
        fix = did_you_mean(side.experiment, by_name) or f"choose from {', '.join(by_name)}"
        yield Problem(f"{where}.experiment", f"is {side.experiment!r}, which is no experiment here", fix)
        return
    choices = f"choose from {', '.join(map(str, known.threads))}"
    if known.mode != "timing":
        what = f"is {side.experiment!r}, whose mode is {known.mode}: it measures no latency"
        yield Problem(f"{where}.experiment", what, "name a timing experiment")
    elif side.threads is None and len(known.threads) > 1:
        yield Problem(f"{where}.threads", f"is missing; {side.experiment} has several", choices)
    elif side.threads is not None and side.threads not in known.threads:
        what = f"is {side.threads}, which {side.experiment} does not run with"
        yield Problem(f"{where}.threads", what, choices)


def _target_problems(target: TargetSettings) -> Iterator[Problem]:
    # If no device or host is named, auto is this machine.
    kind = target.choice.kind
    wanted = {
        "device": ("android",),
        "remote": ("android",),
        "host": ("ssh",),
        "device_path": ("android", "ssh"),
    }
    for field, kinds in wanted.items():
        if getattr(target, field) is not None and kind not in kinds:
            fix = f'set target.name to "{kinds[0]}" or drop {field}'
            yield Problem(f"target.{field}", f"means nothing to target {target.name}", fix)
    if target.power_mode != "leave" and kind != "android":
        fix = 'set target.name to "android" or power_mode to "leave"'
        yield Problem("target.power_mode", f"cannot be set on target {target.name}", fix)
    if target.device and target.remote:
        yield Problem("target.remote", "names a second device beside target.device", "keep one of the two")
    if kind == "ssh" and not target.host:
        yield Problem("target.host", "is missing", "name the machine to reach with ssh")


def file_problems(config: ProfileConfig, written: ProfileConfig, folder: Path) -> Iterator[Problem]:
    """Files that are missing; `written` holds the paths as the user wrote them."""
    yield from _missing("model", written.model, config.model, folder)
    experiments = zip(config.experiments, written.experiments, strict=True)
    for place, (experiment, as_written) in enumerate(experiments):
        if experiment.runner is None or as_written.runner is None:
            continue
        where = f"experiments[{place}].runner_path"
        missing = list(_missing(where, as_written.runner, experiment.runner, folder))
        yield from missing
        if not missing and not os.access(experiment.runner, os.X_OK):
            yield Problem(where, f"{experiment.runner} is not executable", f"chmod +x {experiment.runner}")
    inputs = zip(config.inputs.files, written.inputs.files, strict=True)
    for place, (file, file_as_written) in enumerate(inputs):
        yield from _missing(f"inputs.files[{place}]", file_as_written, file, folder)
    above = (config.output_root, *config.output_root.parents)
    start = next((path for path in above if path.exists()), None)
    if start and not start.is_dir():
        yield Problem("output_root", f"{start} is a file", "name a folder")
    elif start and not os.access(start, os.W_OK):
        yield Problem("output_root", f"{start} is not writable", "name a folder you may write to")


_CURES = {
    "model": "export it (sme2prof export) or correct the path",
    "runner_path": 'set "builtin" or give --builtin-runner (the kit\'s own: nothing to build), correct the '
    f"path, or build it ({build_runners()})",
    "inputs": "correct the path, or drop it to use made-up inputs",
}


def _missing(where: str, written: Path, found: Path, folder: Path) -> Iterator[Problem]:
    cure = next(cure for key, cure in _CURES.items() if key in where)
    if not found.exists():
        places = f"not in {folder}" if folder == Path.cwd() else f"neither in {folder} nor in {Path.cwd()}"
        absent = f"{found} does not exist" if written.is_absolute() else f"{written} is {places}"
        yield Problem(where, absent, cure)
    elif not found.is_file():
        yield Problem(where, f"{found} is a folder", cure)
    elif found.stat().st_size == 0:
        yield Problem(where, f"{found} is empty", cure)


# Older spellings are translated; other unknown keys are errors: ignoring one falsifies a measurement.

_NUMBERS = ("runs", "num_runs", "warmup", "threads", "num_threads")


def translate(raw: Mapping[str, object]) -> tuple[dict[str, object], tuple[Diagnostic, ...]]:
    """Translate `raw` to this kit's spelling and list the changes; wrong shapes are left to the checks."""
    remarks = list[Diagnostic]()
    changed = {key: _unquoted(value, key, remarks) for key, value in raw.items() if key != "$schema"}
    experiments = changed.get("experiments")
    for place, found in enumerate(experiments if isinstance(experiments, list) else ()):
        if not isinstance(found, dict):
            continue
        if "quiet_runner" in found:
            runner = found.pop("quiet_runner")
            used = found["runner_path"] = found.get("runner_path") or runner
            why = "is taken for runner_path" if used == runner else "is left aside: runner_path is given"
            said = f"experiments[{place}].quiet_runner {why}"
            remarks.append(Diagnostic(None, "quiet_runner", said, "write runner_path"))
        if found.get("runner_path", "") is None:
            del found["runner_path"]
    return changed, tuple(remarks)


def _unquoted(value: object, where: str, remarks: list[Diagnostic], key: str = "") -> object:
    """A copy of `value` with quoted numbers as numbers."""
    if isinstance(value, Mapping):
        return {name: _unquoted(each, f"{where}.{name}", remarks, name) for name, each in value.items()}
    if isinstance(value, list) and key not in _NUMBERS:
        return [_unquoted(each, f"{where}[{place}]", remarks) for place, each in enumerate(value)]
    if key not in _NUMBERS:
        return value
    listed = value if isinstance(value, list) else [value]
    numbers = [int(each) if isinstance(each, str) and _INTEGER.fullmatch(each) else each for each in listed]
    if numbers != listed:
        said = f"{where} is in quotes and read as {', '.join(map(str, numbers))}"
        remarks.append(Diagnostic(None, "quoted_number", said, "write numbers without quotes"))
    return numbers if isinstance(value, list) else numbers[0]


_INTEGER = re.compile(r"\s*[0-9]{1,9}\s*")
