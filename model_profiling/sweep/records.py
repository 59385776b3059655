"""What a sweep is made of, and what became of each part.

A cell is what people count: one model in one dtype for one backend, with so many threads, on one rung, on one
target. A job is all cells of one program on one target: they take turns in one run directory. The record of
all cells (`cells.json`) is written whole at every change, so that a killed sweep says where it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from model_profiling import files
from model_profiling.config.settings import ProfileConfig, Schedule
from model_profiling.config.sweep import Rung, choice_of
from model_profiling.json_record import read_record, record_json
from model_profiling.reading import stays_inside
from model_profiling.targets import Target
from model_profiling.targets.protocol import PowerMode, TargetChoice, place_of
from model_profiling.workflow.made_configs import RungAsked, make_rung_config

CELLS = "cells.json"
SWEEP = "sweep.json"
ARTIFACTS = "artifacts"
RUNS = "runs"

CellState = Literal["waiting", "running", "done", "failed", "left out"]
ENDED: frozenset[CellState] = frozenset({"done", "failed", "left out"})


@dataclass(frozen=True, slots=True)
class Program:
    """One export. `model` is a path of a .pte, which is one already, or what `find_or_export` takes; `name`
    is the file's stem, and no two programs of a sweep share one."""

    name: str
    model: str
    dtype: str | None = None
    backend: str | None = None

    @property
    def exported(self) -> bool:
        """Whether there is nothing to export."""
        return self.model.endswith(".pte")


@dataclass(frozen=True, slots=True)
class Cell:
    program: Program
    threads: int
    rung: str
    target: str

    @property
    def job_id(self) -> str:
        return job_id(self.program, self.target)

    @property
    def id(self) -> str:
        """`toy_cnn_xnnpack_fp16/android-SERIAL/off/t4`: the same in every process and every session."""
        return f"{self.job_id}/{self.rung}/t{self.threads}"

    @property
    def values(self) -> dict[str, object]:
        """What it is of everything that a sweep varies, as exclusions name it."""
        return {
            "model": self.program.model,
            "dtype": self.program.dtype,
            "backend": self.program.backend,
            "threads": self.threads,
            "rung": self.rung,
            "target": self.target,
        }


def job_id(program: Program, target: str) -> str:
    return f"{program.name}/{place_of(target)}"


@dataclass(frozen=True, slots=True)
class Measure:
    """How the cells of a sweep are measured: the same for all of them."""

    runs: int = 10
    warmup: int = 3
    schedule: Schedule = field(default_factory=Schedule)
    power_mode: PowerMode = "leave"


@dataclass(frozen=True, slots=True)
class Job:
    """All cells of one program on one target: one run directory, `runs/<program>/<place>` of the sweep."""

    program: Program
    target: str
    cells: tuple[Cell, ...]
    rungs: tuple[Rung, ...]
    """Those of its cells, in the order of the sweep."""
    measure: Measure = field(default_factory=Measure)

    @property
    def id(self) -> str:
        return job_id(self.program, self.target)

    @property
    def run_dir(self) -> str:
        """Relative to the sweep's folder."""
        return f"{RUNS}/{self.id}"

    @property
    def choice(self) -> TargetChoice:
        """What opens its target, on the machine that reaches it."""
        return choice_of(self.target, self.measure.power_mode)

    def config(self, program: Path, output_root: Path, target: Target) -> ProfileConfig:
        """What is measured: one experiment for each rung, each other rung compared with `on`. `target` is
        open; a ladder asks it for its CPU's features."""
        asked = tuple(RungAsked(rung.name, rung.disable, self.threads_of(rung.name)) for rung in self.rungs)
        measure = self.measure
        return make_rung_config(
            target, program, output_root, asked, measure.schedule, runs=measure.runs, warmup=measure.warmup
        )

    def threads_of(self, rung: str) -> tuple[int, ...]:
        return tuple(cell.threads for cell in self.cells if cell.rung == rung)


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What became of a cell; `reason` and `fix` of one that is failed or left out, and of a waiting one what
    it waits for. `run_dir` is relative to the sweep's folder."""

    cell: Cell
    state: CellState = "waiting"
    reason: str = ""
    fix: str = ""
    run_dir: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """`cells.json`: every cell of a sweep, once."""

    schema_version: int = 1
    name: str
    began: str
    ended: str | None = None
    devices: dict[str, str] = field(default_factory=dict)
    """Which device of the workers a target that names none (`host`) was measured on."""
    cells: tuple[CellRecord, ...] = ()

    def counts(self) -> dict[CellState, int]:
        found: dict[CellState, int] = {}
        for each in self.cells:
            found[each.state] = found.get(each.state, 0) + 1
        return found

    @property
    def has_ended(self) -> bool:
        return all(each.ended for each in self.cells)


def read_sweep_record(folder: Path) -> SweepRecord:
    path = folder / CELLS
    found = read_record(SweepRecord, path, "begin the sweep anew with --force")
    for each in found.cells:
        if each.run_dir is not None:
            stays_inside(each.run_dir, f"{path}: run_dir", folder=True)
    return found


def write_sweep_record(folder: Path, record: SweepRecord) -> None:
    """A line for each cell: quick to write at every change, and readable."""
    content = record_json(record)
    cells = content.pop("cells")
    head = json.dumps(content, ensure_ascii=False).removesuffix("}")
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in cast("list[object]", cells))
    files.write_text(folder / CELLS, f'{head}, "cells": [\n{lines}\n]}}\n')
