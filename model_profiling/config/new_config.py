"""Makes configs and sweep files with the experiments most people want, checked before they are written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from model_profiling.config.names import run_home
from model_profiling.config.problems import require
from model_profiling.config.reading import parse_config
from model_profiling.config.settings import SYNONYMS, Inputs, ProfileConfig, ScheduleMode, target_settings
from model_profiling.config.sweep import OWN_RUNGS, SweepConfig, parse_sweep
from model_profiling.core.errors import InputError
from model_profiling.core.files import is_stream, json_text, write_out
from model_profiling.core.number_formats import USUAL
from model_profiling.models import registry
from model_profiling.models.options import Chosen
from model_profiling.runner.machine import TargetChoice, TargetKind, parse_target, place_of
from model_profiling.targets import plan_targets

Kind = Literal["mac", "linux", "android", "emulated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# The other kinds run on this machine.
_TARGETS: dict[Kind, TargetKind] = {"android": "android", "emulated": "emulated"}


@dataclass(frozen=True, slots=True)
class NewConfig:
    """What the user wants in a new config; fields left out have usable defaults."""

    model: Path
    kind: Kind
    output_root: Path | None = None
    threads: tuple[int, ...] = (1,)
    runs: int = 10
    warmup: int = 3
    mode: ScheduleMode | None = None
    rounds: int | None = None
    precision: float | None = None
    budget_s: float | None = None
    sample: bool | None = None
    device: str | None = None
    host: str | None = None
    trace: bool = False
    runner_on: Path | None = None
    runner_off: Path | None = None
    method: str | None = None
    inputs: Inputs = field(default_factory=Inputs)

    @property
    def root(self) -> Path:
        """The run directory: `output_root`, or else the usual one."""
        place = self.kind if self.host is None else place_of(f"ssh:{self.host}")
        usual = run_home(self.model, None, self.method, self.inputs.file_words) / place
        return self.output_root or usual

    @property
    def case(self) -> dict[str, object]:
        """The settings that choose what of the program runs; only what was asked for."""
        inputs = self.inputs.model_dump(mode="json", exclude_defaults=True)
        return {name: given for name, given in (("method", self.method), ("inputs", inputs)) if given}

    @property
    def target(self) -> TargetChoice:
        if self.host is not None:
            return TargetChoice("ssh", host=self.host)
        return TargetChoice(_TARGETS.get(self.kind, "host"), self.device)


def write_new_config(wanted: NewConfig, output: Path, *, force: bool = False) -> Path:
    """Write a checked config to `output`, a file or the folder for `config.json`."""
    path, folder = free_path(output, "config.json", force=force)
    content = new_config(wanted, folder)
    require(*parse_config(content, folder=folder))
    write_out(path, json_text(content))
    return path


def free_path(output: Path, usual: str, *, force: bool) -> tuple[Path, Path]:
    """The file to write (`output`, or `usual` in that folder), and the folder its paths start from."""
    straight = is_stream(output)
    path = output if straight or output.suffix == ".json" else output / usual
    if not straight and path.exists() and not force:
        raise InputError(f"{path} exists", "choose another name or give --force")
    return path, Path.cwd() if straight else path.resolve().parent


def new_config(wanted: NewConfig, folder: Path) -> dict[str, object]:
    """The JSON of a config in `folder`; its paths are relative to that."""
    if (wanted.runner_on is None) != (wanted.runner_off is None):
        raise InputError(
            "only one of two runners is given", "give both --runner-on and --runner-off, or neither"
        )
    if wanted.host is not None and (wanted.kind != "linux" or wanted.device):
        raise InputError(
            f"--host does not work with --platform {wanted.kind}", "give --host with --platform linux alone"
        )
    asked = {name: getattr(wanted, name) for name in ("mode", "rounds", "precision", "budget_s", "sample")}
    if wanted.runner_on is not None:
        asked["mode"] = "rounds"  # an executor_runner cannot take turns
    schedule = {name: value for name, value in asked.items() if value is not None}
    return {
        "schema_version": 1,
        "model": _relative(wanted.model, folder),
        "output_root": _relative(wanted.root, folder),
        "target": target_settings(wanted.target),
        **wanted.case,
        **({"schedule": schedule} if schedule else {}),
        "experiments": new_experiments(wanted, folder),
    }


def new_experiments(wanted: NewConfig, folder: Path) -> list[dict[str, object]]:
    """SME2 on and off; with `trace`, each once more for kernels."""
    modes = ("timing", "xnntrace") if wanted.trace else ("timing",)
    return [_experiment(wanted, switch, mode, folder) for mode in modes for switch in ("on", "off")]


def _experiment(wanted: NewConfig, switch: str, mode: str, folder: Path) -> dict[str, object]:
    runner = wanted.runner_on if switch == "on" else wanted.runner_off
    traced = mode == "xnntrace"
    return {
        "name": f"{wanted.kind}_sme2_{switch}" + ("_trace" if traced else ""),
        "runner_path": "builtin" if runner is None else _relative(runner, folder),
        "sme2": switch,
        **({"mode": mode} if traced else {}),
        "runs": 1 if traced else wanted.runs,
        "warmup": 0 if traced else wanted.warmup,
        "threads": list(wanted.threads[:1] if traced else wanted.threads),
    }


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path.expanduser().resolve(), folder)).as_posix()
    except ValueError:  # another drive, on Windows
        return str(path.absolute())


@dataclass(frozen=True, slots=True)
class NewSweep:
    """What the user wants in a new sweep file; fields left out have usable defaults."""

    models: tuple[str, ...]
    kind: Kind
    threads: tuple[int, ...] = (1,)
    runs: int = 10
    warmup: int = 3
    schedule: dict[str, object] = field(default_factory=dict)
    device: str | None = None
    host: str | None = None
    method: str | None = None

    @property
    def target(self) -> str:
        if self.host is not None:
            return f"ssh:{self.host}"
        if self.kind == "android":
            if not self.device:
                raise InputError("no phone is named", "give --serial SERIAL, as `adb devices` lists it")
            return f"android:{self.device}"
        return "emulated" if self.kind == "emulated" else "host"

    @property
    def dtypes(self) -> list[str]:
        """All dtypes that any of the models supports; an exported program has its own."""
        found = {dtype for model in self.models if not model.endswith(".pte") for dtype in _dtypes(model)}
        return [dtype for dtype in USUAL if dtype in found]


def _dtypes(model: str) -> Iterable[str]:
    chosen = registry.choose(model)
    return registry.discover()[chosen.model].dtypes if chosen else USUAL


def write_new_sweep(wanted: NewSweep, output: Path, *, force: bool = False) -> Path:
    """Write a checked sweep to `output`, a file or the folder for `sweep.json`."""
    path, folder = free_path(output, "sweep.json", force=force)
    content = new_sweep(wanted, path)
    require(*parse_sweep(content, folder=folder))
    write_out(path, json_text(content))
    return path


def new_sweep(wanted: NewSweep, path: Path) -> dict[str, object]:
    """The JSON of a sweep in the file `path`, which gives it its name."""
    dtypes = wanted.dtypes
    formats = {"dtypes": dtypes, "backends": ["xnnpack"]} if dtypes else {}
    return {
        "schema_version": 1,
        "name": re.sub(r"[^A-Za-z0-9._-]+", "_", path.stem).strip("._-") or "sweep",
        "models": list(wanted.models),
        **formats,
        "threads": list(wanted.threads),
        "rungs": ["on", "off"],
        "targets": [wanted.target],
        "exclude": [],
        "runs": wanted.runs,
        "warmup": wanted.warmup,
        "schedule": wanted.schedule,
        **(
            {"cases": {model: [{"method": wanted.method}] for model in wanted.models}}
            if wanted.method
            else {}
        ),
    }


# Templates for a person to edit.


def config_template(
    model: Path,
    target: str,
    folder: Path,
    *,
    output_root: Path | None = None,
    threads: tuple[int, ...] = (1,),
    trace: bool = False,
) -> dict[str, object]:
    """The JSON of a config in `folder` that compares SME2 on and off, with paths relative to that; `trace`
    adds experiments that list kernels."""
    choice = _concrete(target)
    platform = {"host": "mac" if sys.platform == "darwin" else "linux", "ssh": "linux"}.get(
        choice.kind, choice.kind
    )
    root = output_root or run_home(model) / (place_of(target) if ":" in target else platform)
    timed = {"runs": 10, "warmup": 3, "threads": list(threads)}
    traced = {"mode": "xnntrace", "runs": 1, "warmup": 0, "threads": [threads[0]]}
    return {
        "schema_version": 1,
        "model": _relative(model, folder),
        "output_root": _relative(root, folder),
        "target": target_settings(choice),
        "experiments": [
            {
                "name": f"{platform}_sme2_{switch}{suffix}",
                "runner_path": "builtin",
                "sme2": switch,
                **settings,
            }
            for suffix, settings in (("", timed), *((("_trace", traced),) if trace else ()))
            for switch in ("on", "off")
        ],
    }


def sweep_template(models: Sequence[str], target: str, name: str) -> dict[str, object]:
    """The JSON of a sweep called `name` with every number format that one of `models` supports; an exported
    program has its own."""
    named = [registry.choose(model) for model in models if not model.endswith(".pte")]
    supported = {dtype for model in named for dtype in _dtypes_of(model)}
    formats = [dtype for dtype in USUAL if dtype in supported]
    return {
        "schema_version": 1,
        "name": re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-") or "sweep",
        "models": list(models),
        **({"dtypes": formats, "backends": ["xnnpack"]} if formats else {}),
        "threads": [1],
        "rungs": ["on", "off"],
        "targets": [_concrete(target).kind if target == "auto" else target],
        "exclude": [],
        "schedule": {},
    }


def _concrete(target: str) -> TargetChoice:
    choice = parse_target(target)
    return plan_targets(choice).main if choice.kind == "auto" else choice


def _dtypes_of(chosen: Chosen | None) -> Iterable[str]:
    return registry.discover()[chosen.model].dtypes if chosen else USUAL


# The JSON Schemas of the settings; copies ship as `configs/schema.json` and `configs/sweep_schema.json`.

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ITSELF = {"type": "string", "description": "Where an editor finds this schema."}


def config_schema() -> dict[str, object]:
    """The schema that editors and other programs check a config against."""
    schema = ProfileConfig.model_json_schema()
    schema["properties"]["$schema"] = _ITSELF
    settings = schema["$defs"]["Experiment"]["properties"]
    for old, new in SYNONYMS.items():
        settings[old] = {**settings[new], "description": f"Older name of {new}.", "deprecated": True}
        settings[old].pop("default", None)
    schema["$defs"]["Side"] = {
        "description": "An experiment's name, or its name and a thread count.",
        "anyOf": [{"type": "string", "description": "An experiment's name."}, schema["$defs"]["Side"]],
    }
    return {"$schema": _DIALECT, "schema_version": 1, **schema, "title": "SME2 profiling config"}


def sweep_schema() -> dict[str, object]:
    """The same for sweeps."""
    schema = SweepConfig.model_json_schema()
    schema["properties"]["$schema"] = _ITSELF
    schema["$defs"]["Rung"] = {
        "description": "A rung that the kit knows, or a set of CPU features of your own.",
        "anyOf": [{"enum": list(OWN_RUNGS)}, schema["$defs"]["Rung"]],
    }
    return {"$schema": _DIALECT, "schema_version": 1, **schema, "title": "SME2 profiling sweep"}
