"""Makes a config for a model: the pair of experiments most people want, checked before it is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from model_profiling.config.reading import parse_config
from model_profiling.config.settings import ScheduleMode, target_settings
from model_profiling.errors import InputError
from model_profiling.files import is_stream, json_text, write_out
from model_profiling.run.names import default_run_dir
from model_profiling.targets.protocol import TargetChoice, TargetKind, place_of
from model_profiling.wording import plural

Kind = Literal["mac", "linux", "android", "emulated"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# The others are this machine.
_TARGETS: dict[Kind, TargetKind] = {"android": "android", "emulated": "emulated"}


@dataclass(frozen=True, slots=True)
class NewConfig:
    """What the user wants in a new config; what is left out gets a good value."""

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

    @property
    def target(self) -> TargetChoice:
        if self.host is not None:
            return TargetChoice("ssh", host=self.host)
        return TargetChoice(_TARGETS.get(self.kind, "host"), self.device)


def write_new_config(wanted: NewConfig, output: Path, *, force: bool = False) -> Path:
    """Write a checked config; `output` is the file, or the folder for `config.json`. One that goes into a
    pipe is made for the current folder."""
    path, folder = free_path(output, "config.json", force=force)
    content = new_config(wanted, folder)
    _, problems = parse_config(content, folder=folder)
    if problems:
        raise InputError(problems[0].text, problems[0].fix)
    write_out(path, json_text(content))
    return path


def free_path(output: Path, usual: str, *, force: bool) -> tuple[Path, Path]:
    """The file to write, which is `output` or the `usual` one in it, and the folder its paths start from."""
    straight = is_stream(output)
    path = output if straight or output.suffix == ".json" else output / usual
    if not straight and path.exists() and not force:
        raise InputError(f"{path} exists", "choose another name or give --force")
    return path, Path.cwd() if straight else path.resolve().parent


def new_config(wanted: NewConfig, folder: Path) -> dict[str, object]:
    """The JSON of a config that will lie in `folder`; its paths are relative to there."""
    if (wanted.runner_on is None) != (wanted.runner_off is None):
        raise InputError("one runner of two is named", "give both --runner-on and --runner-off, or neither")
    if wanted.host is not None and (wanted.kind != "linux" or wanted.device):
        raise InputError(f"a host is no {wanted.kind} device", "give --host with --platform linux alone")
    asked = {name: getattr(wanted, name) for name in ("mode", "rounds", "precision", "budget_s", "sample")}
    if wanted.runner_on is not None:
        asked["mode"] = "rounds"  # an executor_runner cannot take turns
    schedule = {name: value for name, value in asked.items() if value is not None}
    pairs = [
        {
            "baseline": {"experiment": f"{wanted.kind}_sme2_off", "threads": threads},
            "candidate": {"experiment": f"{wanted.kind}_sme2_on", "threads": threads},
            "label": f"SME2 on vs off, {plural(threads, 'thread')}",
        }
        for threads in wanted.threads
    ]
    place = wanted.kind if wanted.host is None else place_of(f"ssh:{wanted.host}")
    root = wanted.output_root or default_run_dir(wanted.model, place)
    return {
        "schema_version": 1,
        "model": _relative(wanted.model, folder),
        "output_root": _relative(root, folder),
        "target": target_settings(wanted.target),
        "schedule": schedule,
        "experiments": new_experiments(wanted, folder),
        "analysis": {"compare_pairs": pairs},
    }


def new_experiments(wanted: NewConfig, folder: Path) -> list[dict[str, object]]:
    """SME2 on and off, each once more for kernels where those are wanted."""
    modes = ("timing", "xnntrace") if wanted.trace else ("timing",)
    return [_experiment(wanted, switch, mode, folder) for mode in modes for switch in ("on", "off")]


def _experiment(wanted: NewConfig, switch: str, mode: str, folder: Path) -> dict[str, object]:
    runner = wanted.runner_on if switch == "on" else wanted.runner_off
    traced = mode == "xnntrace"
    return {
        "name": f"{wanted.kind}_sme2_{switch}" + ("_trace" if traced else ""),
        "runner_path": "builtin" if runner is None else _relative(runner, folder),
        "sme2": switch,
        "mode": mode,
        "runs": 1 if traced else wanted.runs,
        "warmup": 0 if traced else wanted.warmup,
        "threads": list(wanted.threads[:1] if traced else wanted.threads),
    }


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path.expanduser().resolve(), folder)).as_posix()
    except ValueError:  # another drive, on Windows
        return str(path.absolute())
