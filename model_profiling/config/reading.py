"""Reads a config file, checks all that can be known before anything runs, and resolves its paths.

Every problem is one line: the file, the field's path, what is wrong, what to write instead. Relative paths
are looked up in the config's folder, then in the working folder.
"""

from __future__ import annotations

import json
import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from model_profiling.compat.earlier_config import json_cure, translate
from model_profiling.config.names import under_either_name
from model_profiling.config.series import Diagnostic, Series, warning_lines
from model_profiling.config.settings import BUILTIN, Experiment, ProfileConfig, Side, shown
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.hints import build_runners
from model_profiling.core.records import JsonObject, read_json_object
from model_profiling.core.safe_read import MIB, is_too_deep, read_text
from model_profiling.runner.machine import TargetChoice

_LARGEST = 4 * MIB
_WORDS = {
    r"^\w+ (?=should)": "it ",
    " after validation": "",
    "a valid tuple": "a list",
    r"a (valid )?dictionary( or (an )?instance of \w+)?": "an object",
}
"""Pydantic's words for what JSON calls otherwise."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the path of the field, what is wrong with it, and what to do."""

    where: str
    what: str
    fix: str

    @property
    def text(self) -> str:
        return f"{self.where} {self.what}" if self.where else self.what


class ConfigError(InputError):
    """A config with problems; the message has the first. `path` is the file, if there is one."""

    def __init__(self, problems: tuple[Problem, ...], path: Path | None = None) -> None:
        first, *others = problems
        more = f" ({len(others)} more: `sme2prof config check` lists all)" if others else ""
        super().__init__(f"{path}: {first.text}" if path else first.text, f"{first.fix}{more}")
        self.problems = problems


def problems_of(error: ValidationError, whole: type[BaseModel]) -> tuple[Problem, ...]:
    """The problems pydantic found in a `whole`, in its order. Pydantic also calls a list too short if all its
    entries are wrong; the entries' own problems say it better."""
    errors = error.errors(include_url=False)
    above = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    return tuple(
        _problem(details, whole)
        for details in errors
        if details["type"] != "too_short" or details["loc"] not in above
    )


def _problem(details: ErrorDetails, whole: type[BaseModel]) -> Problem:
    kind, context, location = details["type"], details.get("ctx", {}), details["loc"]
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
    keys = _fields_at(location[:-1], whole)
    field = keys.get(str(location[-1])) if location else None
    if kind == "kit":  # worded by `config/settings.py`
        return Problem(where, context["problem"], context["fix"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return Problem(
            where,
            "is not a known key",
            did_you_mean(str(location[-1]), keys) or f"remove it; known here: {', '.join(keys)}",
        )
    example = json.dumps(field.examples[0]) if field and field.examples else ""
    if kind == "missing":
        return Problem(where, "is missing", f'add "{location[-1]}": {example or "..."}')
    value = details["input"]
    message = details["msg"]
    for of_python, of_json in _WORDS.items():
        message = re.sub(of_python, of_json, message)
    choices = re.findall("'(.+?)'", message) if kind == "literal_error" else ()
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    more = f"; {hint}" if hint else f", such as {example}" if example and not choices else ""
    return Problem(where, f"is {shown(value)}", f"{message}{more}")


def _fields_at(location: Sequence[int | str], whole: type) -> Mapping[str, FieldInfo | None]:
    """The fields of the record at `location`; only pydantic's own have more than a name."""
    record = whole
    for name in location:
        parts = [typing.get_type_hints(record).get(str(name))]
        while parts:  # a number in a list, or a key of the user's own, leads to no other record
            part = parts.pop()
            parts += typing.get_args(part)
            if is_dataclass(part) or (isinstance(part, type) and issubclass(part, BaseModel)):
                record = typing.cast("type", part)
    if issubclass(record, BaseModel):
        return record.model_fields
    return dict.fromkeys(field.name for field in fields(typing.cast("typing.Any", record)))


def is_sweep(raw: Mapping[str, object]) -> bool:
    return "models" in raw and "experiments" not in raw


def read_object(path: Path, cure: str = "make one with `sme2prof config new`") -> dict[str, object]:
    """Read the JSON object in a file; `cure` says where such a file comes from."""
    if path.suffix == ".pte":
        raise InputError(f"{path} is a program, not a config", f"use `sme2prof profile {path}`")
    if not path.exists():
        raise InputError(f"there is no {path}", cure)
    try:
        text = read_text(path, _LARGEST, follow=True, errors="strict")
        parsed: object = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        problem = Problem(where, f"is not JSON: {error.msg.lower()}", json_cure(error))
    except (RecursionError, ValueError) as error:
        problem = Problem("", f"the file is not JSON: {error}", "correct it, and save it as UTF-8")
    else:
        if isinstance(parsed, dict) and not is_too_deep(text):
            return parsed
        problem = Problem("", "the file holds no JSON object, or one that is nested too deeply", cure)
    raise ConfigError((problem,), path)


def load_config(path: Path, *, files: bool = True, builtin: bool = False) -> ProfileConfig:
    """Load a config with absolute paths and nothing left to infer, or raise ConfigError. Without `files`,
    model and runners need not exist; `builtin` replaces the runners by the kit's own."""
    raw = read_object(path)
    if is_sweep(raw):
        raise InputError(f"{path} is a sweep, not the config of one run", f"use `sme2prof sweep {path}`")
    return parse_config(raw, folder=path.parent, files=files, builtin=builtin, path=path)


def parse_config(
    raw: Mapping[str, object],
    *,
    folder: Path,
    files: bool = True,
    builtin: bool = False,
    path: Path | None = None,
) -> ProfileConfig:
    """Parse a config's JSON object as if from a file in `folder`; errors name `path`."""
    cleaned, otherwise = translate(raw)
    try:
        written = ProfileConfig.model_validate(cleaned)
    except ValidationError as error:
        raise ConfigError(problems_of(error, ProfileConfig), path) from error
    written._said_otherwise = tuple(Diagnostic(None, *remark) for remark in otherwise)
    config = _resolved(written, folder.resolve(), builtin)
    problems = (*_setting_problems(written), *_pair_problems(config), *_same_runner_problems(config))
    if problems := problems or tuple(_file_problems(config) if files else ()):
        raise ConfigError(problems, path)
    return config


def on_target(config: ProfileConfig, choice: TargetChoice) -> ProfileConfig:
    """`config` on the machine of `choice`; refuse a config for another kind of machine."""
    written = config.target
    if written.name not in ("auto", choice.name):
        raise InputError(
            f"this config is for target {written.name}, not {choice.name}",
            "use sme2prof run without --target",
        )
    target = replace(
        choice if choice.has_address else written,
        name=choice.name,
        device_path=choice.device_path or written.device_path,
        power_mode=written.power_mode if choice.power_mode == "leave" else choice.power_mode,
    )
    return config.model_copy(update={"target": target})


def config_warnings(config: ProfileConfig) -> tuple[str, ...]:
    """What is allowed but probably not intended, one line per kind."""
    remarks = [*config.said_otherwise]
    timing = any(experiment.mode == "timing" for experiment in config.experiments)
    if timing and (rounds := config.schedule.most_rounds) < 6:
        seen = f"schedule.rounds is {rounds}: fewer than 6 can only show large differences"
        remarks.append(Diagnostic(None, "rounds", seen))
    if timing and not config.pairs:
        seen = "nothing will be compared: no experiment with SME2 off has a counterpart with SME2 on"
        remarks.append(Diagnostic(None, "no_pair", seen))
    return tuple(line.text for line in warning_lines(remarks))


RECORD = "runner_build.json"
"""Beside every runner that `build_runners.sh` made: how it was built, or that it is the kit's own."""


def build_record(program: Path) -> JsonObject:
    """Return what is known about the build of `program`; nothing if there is no record of it."""
    try:
        return read_json_object(program.with_name(RECORD), "")
    except ProfilingError:
        return {}


_WORD = re.compile(r"(?:^|[-_.])(?:xnnlog|xnntrace|trace)(?:$|[-_.])", re.IGNORECASE)


def _why_traced(runner: Path, built: JsonObject) -> str:
    """Return what says that `runner` writes XNNPACK's log, which shows kernels and takes time: the record of
    its build, else its path. Empty if nothing does."""
    if isinstance(built.get("xnnlog"), bool):
        return "the record of its build" if built["xnnlog"] else ""
    # The build's folder and the file: folders above them are named after other things.
    return "its path" if any(map(_WORD.search, runner.parts[-2:])) else ""


def _resolved(config: ProfileConfig, folder: Path, builtin: bool) -> ProfileConfig:
    """`config` with absolute paths, and the switch, mode and runner of every experiment."""
    experiments, remarks = [], list(config.said_otherwise)
    for experiment in config.experiments:
        update: dict[str, str] = {"sme2": experiment.side}
        if experiment.runner is not None:
            path = found_path(experiment.runner, folder)
            if not path.exists():  # it may also start in the ExecuTorch checkout, as in the earlier kit
                in_checkout = found_path(Path("executorch") / experiment.runner, folder)
                path = in_checkout if in_checkout.exists() else path
            built = build_record(path)
            # A program that `build_runners.sh` put over the kit's runner is that runner.
            own = builtin or built.get("runner") == BUILTIN
            update["runner_path"] = BUILTIN if own else str(path)
            if experiment.mode == "timing" and (why := _why_traced(path, built)):
                update["mode"] = "xnntrace"
                seen = (
                    f"{experiment.runner_path} writes XNNPACK's log ({why}), so its times are not latencies"
                )
                seen += ": read as mode xnntrace, which shows kernels and is not compared"
                cure = "for latencies, name a runner built without that log"
                remarks.append(Diagnostic(Series(experiment.name), "trace_runner", seen, cure))
        experiments.append(experiment.model_copy(update=update))
    files = tuple(found_path(file, folder) for file in config.inputs.files)
    resolved = config.model_copy(
        update={
            "model": found_path(config.model, folder),
            "output_root": _absolute(_start_of_outputs(config, folder) / config.output_root),
            "experiments": tuple(experiments),
            "inputs": config.inputs.model_copy(update={"files": files}),
        }
    )
    resolved._said_otherwise = tuple(remarks)
    return resolved


def _start_of_outputs(config: ProfileConfig, folder: Path) -> Path:
    """Where a relative output_root starts: the folder in which the model was found. Results can outlive their
    model: without it, the folder that holds the run directory, else the config's folder. Results of
    `out_X/artifacts/...` in `out_X/...` belong together, wherever that folder is."""
    home = found_path(config.model, folder).parent.parent
    if home.is_dir() and home.name == config.output_root.parts[0] and config.model.parent.name == "artifacts":
        return home.parent
    for wanted in (config.model, config.output_root):
        for start in _starts(folder):
            if under_either_name(start / wanted).exists():
                return start
    return folder


def found_path(path: Path, folder: Path) -> Path:
    """`path` in the config's folder, the working folder or its model_profiling; in the first if it exists in
    none."""
    places = [under_either_name(_absolute(start / path)) for start in _starts(folder)]
    return next((place for place in places if place.exists()), places[0])


def _starts(folder: Path) -> tuple[Path, ...]:
    return folder, Path.cwd(), Path.cwd() / "model_profiling"


def _absolute(path: Path) -> Path:
    return Path(os.path.normpath(path))


# Settings against each other and against the files they name.


def _setting_problems(config: ProfileConfig) -> Iterator[Problem]:
    """Settings that contradict each other, in the order of the file."""
    seen: dict[str, int] = {}
    for place, experiment in enumerate(config.experiments):
        where = f"experiments[{place}]"
        # On most Macs, folder names that differ only in case are the same folder.
        first = seen.setdefault(experiment.name.lower(), place)
        if first != place:
            same = f"is {experiment.name!r}, like experiments[{first}]"
            yield Problem(f"{where}.name", same, "give every experiment its own name")
        if experiment.sme2 == "on" and {"sme2", "sme"} & set(experiment.disable):
            fix = 'set sme2 to "off" or disable less'
            yield Problem(f"{where}.disable", 'switches SME2 off while sme2 is "on"', fix)
        if experiment.runner is not None and experiment.disable:
            fix = 'set runner_path to "builtin" or drop disable'
            yield Problem(f"{where}.disable", "only the kit's own runner can switch features off", fix)
    yield from _target_problems(config.target)


def _same_runner_problems(config: ProfileConfig) -> Iterator[Problem]:
    """On and off with one stock runner would measure the same code twice; two paths may lead to one file."""
    runners = [experiment.runner and experiment.runner.resolve() for experiment in config.experiments]
    sides = list(zip(runners, (experiment.side for experiment in config.experiments), strict=True))
    for place, (runner, side) in enumerate(sides):
        if side == "off" and runner is not None and (runner, "on") in sides:
            what = "is off, but an experiment with SME2 on uses the same runner, which has no switch"
            fix = 'set runner_path to "builtin", or to a runner built without SME2'
            yield Problem(f"experiments[{place}].sme2", what, fix)


def _pair_problems(config: ProfileConfig) -> Iterator[Problem]:
    by_name = {experiment.name: experiment for experiment in config.experiments}
    for place, pair in enumerate(config.analysis.compare_pairs):
        where = f"analysis.compare_pairs[{place}]"
        problems = [
            *_side_problems(pair.baseline, by_name, f"{where}.baseline"),
            *_side_problems(pair.candidate, by_name, f"{where}.candidate"),
        ]
        yield from problems
        if not problems and pair.baseline == pair.candidate:
            yield Problem(where, "compares an experiment with itself", "name two different ones")


def _side_problems(side: Side, by_name: Mapping[str, Experiment], where: str) -> Iterator[Problem]:
    experiment = by_name.get(side.experiment)
    if experiment is None:
        fix = did_you_mean(side.experiment, by_name) or f"choose from {', '.join(by_name)}"
        yield Problem(f"{where}.experiment", f"is {side.experiment!r}, but there is no such experiment", fix)
        return
    choices = f"choose from {', '.join(map(str, experiment.threads))}"
    if experiment.mode != "timing":
        what = f"is {side.experiment!r}, whose mode is {experiment.mode}: it measures no latency"
        yield Problem(f"{where}.experiment", what, "name a timing experiment, or remove the pair")
    elif side.threads is None and len(experiment.threads) > 1:
        yield Problem(f"{where}.threads", f"is missing; {side.experiment} has several", choices)
    elif side.threads is not None and side.threads not in experiment.threads:
        what = f"is {side.threads}, which {side.experiment} does not run with"
        yield Problem(f"{where}.threads", what, choices)


_TARGETS_OF = {
    "device": ("android",),
    "remote": ("android",),
    "host": ("ssh",),
    "device_path": ("android", "ssh"),
    "power_mode": ("android",),
}
_ADDRESSES = {
    "remote": (r"[A-Za-z0-9_.\[\]:-]{1,255}:[0-9]{1,5}", "192.0.2.7:5555"),
    "host": (r"[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]{0,254}", "board"),
    "device_path": (r"/[A-Za-z0-9_./-]{1,999}", "/data/local/tmp"),
}
"""What they look like: they become words of commands."""


def _target_problems(target: TargetChoice) -> Iterator[Problem]:
    for field, (pattern, example) in _ADDRESSES.items():
        value = getattr(target, field)
        if value is not None and not re.fullmatch(pattern, value):
            yield Problem(f"target.{field}", f"is {shown(value)}", f"write it like {example}")
    for field, kinds in _TARGETS_OF.items():
        if getattr(target, field) not in (None, "leave") and target.name not in kinds:
            fix = f'set target.name to "{kinds[0]}" or drop {field}'
            yield Problem(f"target.{field}", f"has no meaning for target {target.name}", fix)
    if target.device and target.remote:
        yield Problem("target.remote", "names a second device beside target.device", "keep one of the two")
    if target.name == "ssh" and not target.host:
        yield Problem("target.host", "is missing", "name the machine to reach with ssh")


def _file_problems(config: ProfileConfig) -> Iterator[Problem]:
    """Files that are missing, and a folder for results that cannot be one."""
    runners = [experiment.runner for experiment in config.experiments]
    named = {
        "model": config.model,
        **{f"experiments[{place}].runner_path": path for place, path in enumerate(runners) if path},
        **{f"inputs.files[{place}]": path for place, path in enumerate(config.inputs.files)},
    }
    for where, path in named.items():
        if not path.is_file():
            what = "a folder" if path.is_dir() else "missing"
            cure = next(cure for key, cure in _CURES.items() if key in where)
            yield Problem(where, f"{path} is {what}", cure)
        elif path in runners and not os.access(path, os.X_OK):
            yield Problem(where, f"{path} is not executable", f"chmod +x {path}")
    above = (config.output_root, *config.output_root.parents)
    start = next((path for path in above if path.exists()), None)
    if start and not (start.is_dir() and os.access(start, os.W_OK)):
        yield Problem("output_root", f"{start} is not a folder you may write to", "name another folder")


_CURES = {
    "model": "export it (sme2prof export) or correct the path",
    "runner_path": 'set "builtin" or give --builtin-runner (the kit\'s own: nothing to build), correct the '
    f"path, or build it ({build_runners()})",
    "inputs": "correct the path, or drop it to use made-up inputs",
}
