"""What a config's settings must be to each other and to the files they name; shapes are checked before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from model_profiling.config.problems import Problem, nearest
from model_profiling.config.settings import BUILTIN, Experiment, ProfileConfig, Side, Switch, TargetSettings
from model_profiling.wording import plural

_OFF_MARKS = ("sme2-off", "sme2_off", "no-sme2", "no_sme2", "nosme2", "without_sme2", "without-sme2")
_ON_MARKS = ("sme2-on", "sme2_on")

# What the kit passes to the runner itself; a second value would silently win or lose.
_OWN_FLAGS = {
    "--model": "model",
    "--model_path": "model",
    "--method": "method",
    "--method_name": "method",
    "--input": "inputs.files",
    "--inputs": "inputs.files",
    "--fill": "inputs.fill",
    "--seed": "inputs.seed",
    "--threads": "threads",
    "--cpu_threads": "threads",
    "--warmup": "warmup",
    "--executions": "runs",
    "--num_executions": "runs",
    "--disable": "disable",
    "--time-limit": "schedule.timeout_s",
    "--count-kernels": "mode",
}
_KITS_FLAGS = ("--etdump", "--etdump_path", "--result", "--output-prefix", "--output_file", "--features-only")


def setting_problems(config: ProfileConfig) -> Iterator[Problem]:
    """Settings that contradict each other, in the order of the file."""
    if config.model.suffix != ".pte":
        fix = "export it first (sme2prof export) and name the .pte file"
        yield Problem("model", f"is {str(config.model)!r}, which is no .pte program", fix)
    yield from _experiment_problems(config)
    yield from _target_problems(config.target)
    if config.schedule.precision is not None and config.schedule.min_rounds > config.schedule.rounds:
        yield Problem(
            "schedule.min_rounds",
            f"is {config.schedule.min_rounds}, more than the {plural(config.schedule.rounds, 'round')}",
            "raise rounds or lower min_rounds",
        )
    yield from _pair_problems(config)


def switch_in_name(text: str) -> Switch | None:
    """What a runner's path or an experiment's name says about SME2, if anything."""
    lowered = text.lower()
    if any(mark in lowered for mark in _OFF_MARKS):
        return "off"
    return "on" if any(mark in lowered for mark in _ON_MARKS) else None


def without_switch(name: str) -> str:
    """The name with what it says about SME2 left out: the same for the two experiments of a pair."""
    bare = name.lower()
    for mark in (*_OFF_MARKS, *_ON_MARKS):
        bare = bare.replace(mark, "")
    return bare


def _experiment_problems(config: ProfileConfig) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for place, experiment in enumerate(config.experiments):
        where = f"experiments[{place}]"
        # Folder names that differ only in case are one folder on most Macs.
        first = seen.setdefault(experiment.name.lower(), place)
        if first != place:
            same = f"is {experiment.name!r}, like experiments[{first}]"
            yield Problem(f"{where}.name", same, "give every experiment its own name")
        yield from _switch_problems(experiment, where)
        yield from _argument_problems(experiment, where)
        for field in ("threads", "cpu_affinity", "disable"):
            entries = getattr(experiment, field)
            repeated = [entry for entry in entries if entries.count(entry) > 1]
            if repeated:
                yield Problem(f"{where}.{field}", f"lists {repeated[0]} twice", "list it once")
    yield from _same_binary_problems(config.experiments)


def _switch_problems(experiment: Experiment, where: str) -> Iterator[Problem]:
    for field, text in (("runner_path", experiment.runner_path), ("name", experiment.name)):
        said = switch_in_name(text)
        if experiment.sme2 and said and said != experiment.sme2:
            yield Problem(
                f"{where}.sme2",
                f'is "{experiment.sme2}", but {field} {text!r} says {said}',
                f'set sme2 to "{said}" or change {field}',
            )
    if experiment.sme2 == "on" and {"sme2", "sme"} & set(experiment.disable):
        yield Problem(
            f"{where}.disable", 'switches SME2 off while sme2 is "on"', 'set sme2 to "off" or disable less'
        )
    if experiment.runner_path != BUILTIN and experiment.disable:
        yield Problem(
            f"{where}.disable",
            "only the kit's own runner can switch features off",
            'set runner_path to "builtin" or drop disable',
        )


def _argument_problems(experiment: Experiment, where: str) -> Iterator[Problem]:
    for word in experiment.extra_args:
        flag = word.partition("=")[0]
        flag = "--" + flag.lstrip("-") if flag.startswith("-") else flag
        if flag in _OWN_FLAGS:
            yield Problem(
                f"{where}.extra_args", f"sets {word!r}", f"use the setting {_OWN_FLAGS[flag]} instead"
            )
        elif flag in _KITS_FLAGS:
            yield Problem(f"{where}.extra_args", f"sets {word!r}, which the kit sets itself", "drop it")


def _same_binary_problems(experiments: tuple[Experiment, ...]) -> Iterator[Problem]:
    """On and off with one stock runner would measure the same code twice."""
    on = {one.runner_path for one in experiments if one.sme2 == "on"}
    for place, one in enumerate(experiments):
        if one.sme2 == "off" and one.runner_path != BUILTIN and one.runner_path in on:
            yield Problem(
                f"experiments[{place}].sme2",
                "is off, but an experiment with SME2 on uses the same runner, which has no switch",
                'set runner_path to "builtin", or to a runner built without SME2',
            )


def _pair_problems(config: ProfileConfig) -> Iterator[Problem]:
    by_name = {experiment.name: experiment for experiment in config.experiments}
    labels: set[str] = set()
    for place, pair in enumerate(config.analysis.compare_pairs):
        where = f"analysis.compare_pairs[{place}]"
        found = []
        for field, side in (("baseline", pair.baseline), ("candidate", pair.candidate)):
            problem = _side_problem(side, by_name, f"{where}.{field}")
            found.extend([problem] if problem else [])
        yield from found
        if not found and pair.baseline == pair.candidate:
            yield Problem(where, "compares an experiment with itself", "name two different ones")
        if pair.label is not None and pair.label in labels:
            yield Problem(
                f"{where}.label", f"is {pair.label!r} a second time", "give every pair its own label"
            )
        labels.add(pair.label or "")


def _side_problem(side: Side, by_name: Mapping[str, Experiment], where: str) -> Problem | None:
    known = by_name.get(side.experiment)
    if known is None:
        return Problem(
            f"{where}.experiment",
            f"is {side.experiment!r}, which is no experiment here",
            nearest(side.experiment, by_name) or f"choose from {', '.join(by_name)}",
        )
    if known.mode != "timing":
        return Problem(
            f"{where}.experiment",
            f"is {side.experiment!r}, whose mode is {known.mode}: it measures no latency",
            "name a timing experiment",
        )
    if side.threads is None and len(known.threads) > 1:
        return Problem(
            f"{where}.threads", f"is missing; {side.experiment} has several", _one_of(known.threads)
        )
    if side.threads is not None and side.threads not in known.threads:
        problem = f"is {side.threads}, which {side.experiment} does not run with"
        return Problem(f"{where}.threads", problem, _one_of(known.threads))
    return None


def _one_of(threads: tuple[int, ...]) -> str:
    return f"choose from {', '.join(map(str, threads))}"


def _target_problems(target: TargetSettings) -> Iterator[Problem]:
    # Without a device to name, auto is this machine.
    if target.choice.kind != "android":
        for field in ("device", "remote", "device_path"):
            if getattr(target, field) is not None:
                fix = f'set target.name to "android" or drop {field}'
                yield Problem(f"target.{field}", f"means nothing to target {target.name}", fix)
        if target.power_mode != "leave":
            fix = 'set target.name to "android" or power_mode to "leave"'
            yield Problem("target.power_mode", f"cannot be set on target {target.name}", fix)
    if target.device and target.remote:
        yield Problem("target.remote", "names a second device beside target.device", "keep one of the two")


def file_problems(config: ProfileConfig, written: ProfileConfig, folder: Path) -> Iterator[Problem]:
    """Files that are not there; `written` holds the paths as the user wrote them."""
    yield from _missing("model", written.model, config.model, folder)
    for place, (one, as_written) in enumerate(zip(config.experiments, written.experiments, strict=True)):
        if one.runner is None or as_written.runner is None:
            continue
        where = f"experiments[{place}].runner_path"
        missing = list(_missing(where, as_written.runner, one.runner, folder))
        yield from missing
        if not missing and not os.access(one.runner, os.X_OK):
            yield Problem(where, f"{one.runner} is not executable", f"chmod +x {one.runner}")
    for place, (file, as_written_file) in enumerate(
        zip(config.inputs.files, written.inputs.files, strict=True)
    ):
        yield from _missing(f"inputs.files[{place}]", as_written_file, file, folder)
    for folder_or_file in (config.output_root, *config.output_root.parents):
        if folder_or_file.exists():
            if not folder_or_file.is_dir():
                yield Problem("output_root", f"{folder_or_file} is a file", "name a folder")
            elif not os.access(folder_or_file, os.W_OK):
                yield Problem(
                    "output_root", f"{folder_or_file} is not writable", "name a folder you may write to"
                )
            break


_CURES = {
    "model": "export it (sme2prof export) or correct the path",
    "runner_path": 'build it (build_runners.sh), correct the path, or set "builtin"',
    "inputs": "correct the path, or drop it to use made-up inputs",
}


def _missing(where: str, written: Path, found: Path, folder: Path) -> Iterator[Problem]:
    cure = next(cure for key, cure in _CURES.items() if key in where)
    if not found.exists():
        yield Problem(where, _absence(written, found, folder), cure)
    elif not found.is_file():
        yield Problem(where, f"{found} is a folder", cure)
    elif found.stat().st_size == 0:
        yield Problem(where, f"{found} is empty", cure)


def _absence(written: Path, found: Path, folder: Path) -> str:
    if written.is_absolute():
        return f"{found} does not exist"
    if folder == Path.cwd():
        return f"{written} is not in {folder}"
    return f"{written} is neither in {folder} nor in {Path.cwd()}"
