"""Makes a sweep file for models: every dtype on one target, checked before it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from model_profiling.config.new_config import Kind, free_path
from model_profiling.config.sweep_reading import parse_sweep
from model_profiling.errors import InputError
from model_profiling.files import json_text, write_out
from model_profiling.models import registry
from model_profiling.models.registry import DTYPES


@dataclass(frozen=True, slots=True)
class NewSweep:
    """What the user wants in a new sweep file; what is left out gets a good value."""

    models: tuple[str, ...]
    kind: Kind
    threads: tuple[int, ...] = (1,)
    runs: int = 10
    warmup: int = 3
    schedule: dict[str, object] = field(default_factory=dict)
    device: str | None = None
    host: str | None = None

    @property
    def target(self) -> str:
        """As a sweep writes it."""
        if self.host is not None:
            return f"ssh:{self.host}"
        if self.kind == "android":
            if not self.device:
                raise InputError("no phone is named", "give --device SERIAL, as `adb devices` lists it")
            return f"android:{self.device}"
        return "emulated" if self.kind == "emulated" else "host"

    @property
    def dtypes(self) -> list[str]:
        """All that any of the models can be had in; a program has its own."""
        found = {dtype for model in self.models if not model.endswith(".pte") for dtype in _dtypes(model)}
        return [dtype for dtype in DTYPES if dtype in found]


def _dtypes(model: str) -> Iterable[str]:
    chosen = registry.choose(model)
    return registry.discover()[chosen.model].dtypes if chosen else DTYPES


def write_new_sweep(wanted: NewSweep, output: Path, *, force: bool = False) -> Path:
    """Write a checked sweep; `output` is the file, or the folder for `sweep.json`."""
    path, folder = free_path(output, "sweep.json", force=force)
    content = new_sweep(wanted, path)
    _, problems = parse_sweep(content, folder=folder)
    if problems:
        raise InputError(problems[0].text, problems[0].fix)
    write_out(path, json_text(content))
    return path


def new_sweep(wanted: NewSweep, path: Path) -> dict[str, object]:
    """The JSON of a sweep that will lie in `path`, and is named after it."""
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
    }
