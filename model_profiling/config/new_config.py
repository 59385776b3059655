"""A config for people to edit, and the JSON Schemas of configs and sweeps."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from model_profiling.config.names import run_home
from model_profiling.config.settings import SYNONYMS, ProfileConfig
from model_profiling.config.sweep import OWN_RUNGS, SweepConfig
from model_profiling.core.errors import InputError
from model_profiling.runner.machine import parse_target, place_of
from model_profiling.targets import plan_targets


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
    choice = parse_target(target)
    if choice.name == "auto":
        choice = plan_targets(choice).main
    platform = {"host": "mac" if sys.platform == "darwin" else "linux", "ssh": "linux"}.get(
        choice.name, choice.name
    )
    root = output_root or run_home(model) / (place_of(target) if ":" in target else platform)
    timed = {"runs": 10, "warmup": 3, "threads": list(threads)}
    traced = {"mode": "xnntrace", "runs": 1, "warmup": 0, "threads": [threads[0]]}
    return {
        "schema_version": 1,
        "model": _relative(model, folder),
        "output_root": _relative(root, folder),
        "target": {key: value for key, value in asdict(choice).items() if value not in (None, "leave")},
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


def free_path(output: Path, *, force: bool) -> tuple[Path, Path]:
    """The file to write (`output`, or `config.json` in that folder), and the folder its paths start from."""
    path = output if output.suffix == ".json" else output / "config.json"
    if path.exists() and not force:
        raise InputError(f"{path} exists", "choose another name or give --force")
    return path, path.resolve().parent


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.expanduser().resolve(), folder)


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
    schema["$defs"]["SweepRung"] = {
        "description": "A rung that the kit knows, or a set of CPU features of your own.",
        "anyOf": [{"enum": list(OWN_RUNGS)}, schema["$defs"]["SweepRung"]],
    }
    return {"$schema": _DIALECT, "schema_version": 1, **schema, "title": "SME2 profiling sweep"}
