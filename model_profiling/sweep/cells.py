"""The cells of a sweep, the jobs that measure them, and the combinations left out.

A cell is what people count: one model in one dtype for one backend, one case (a method and its inputs), one
number of threads, one rung, one target. A job is all cells of one program and case on one target: one Dask
task, which makes one run directory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.config.names import variant_of, with_method
from model_profiling.config.settings import ProfileConfig
from model_profiling.config.sweep import Rung, SweepCase, SweepConfig, choice_of
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.number_formats import format_of_name, parse_format
from model_profiling.core.records import read_record, record_json
from model_profiling.models import registry
from model_profiling.runner.machine import TargetChoice, place_of
from model_profiling.runs.feeding import Feed, feed, one_method
from model_profiling.targets import Target
from model_profiling.workflow.measure import RungAsked, make_rung_config

CELLS = "cells.json"
RUNS = "runs"

CellState = Literal["waiting", "done", "failed", "left out"]


@dataclass(frozen=True, slots=True)
class Program:
    """One export. `model` is a .pte file or what `export_model` takes; `name`, the file's stem, is unique."""

    name: str
    model: str
    dtype: str | None = None
    backend: str | None = None
    keep: tuple[str, ...] = ()
    calibration: str | None = None

    @property
    def id(self) -> str:
        return self.name

    @property
    def is_exported(self) -> bool:
        return self.model.endswith(".pte")

    @property
    def is_own(self) -> bool:
        """Whether its export reads files of the user, which other machines do not have."""
        chosen = registry.choose(self.model)
        if chosen is None or chosen.files or self.calibration or parse_format(self.dtype or "").kind == "own":
            return True
        return registry.discover()[chosen.model].source not in ("kit", "executorch")


@dataclass(frozen=True, slots=True)
class Cell:
    program: Program
    threads: int
    rung: str
    target: str
    case: str = ""
    """The name of its case; empty for the only method with the usual inputs."""

    @property
    def run_name(self) -> str:
        return with_method(self.program.name, None, self.case)

    @property
    def job_id(self) -> str:
        return f"{self.run_name}/{place_of(self.target)}"

    @property
    def id(self) -> str:
        """`toy_cnn_xnnpack_fp16/android-SERIAL/off/t4`: the same in every process and session."""
        return f"{self.job_id}/{self.rung}/t{self.threads}"

    @property
    def values(self) -> dict[str, object]:
        """Its value of each thing that a sweep varies, as exclusions name them."""
        program = self.program
        return {
            **{"model": program.model, "case": self.case, "dtype": program.dtype, "backend": program.backend},
            **{"threads": self.threads, "rung": self.rung, "target": self.target},
        }


@dataclass(frozen=True, slots=True)
class Job:
    """All cells of one program's case on one target: one run directory, `runs/<program>/<place>` of the
    sweep, with the case after the program's name."""

    cells: tuple[Cell, ...]
    sweep: SweepConfig

    @property
    def program(self) -> Program:
        return self.cells[0].program

    @property
    def target(self) -> str:
        return self.cells[0].target

    @property
    def id(self) -> str:
        return self.cells[0].job_id

    @property
    def run_dir(self) -> str:
        """Relative to the sweep's folder."""
        return f"{RUNS}/{self.id}"

    @property
    def case(self) -> SweepCase:
        cases = self.sweep.cases_of(self.program.model)
        return next(case for case in cases if case.name == self.cells[0].case)

    @property
    def rungs(self) -> tuple[Rung, ...]:
        measured = {cell.rung for cell in self.cells}
        return tuple(rung for rung in self.sweep.rungs if rung.name in measured)

    @property
    def choice(self) -> TargetChoice:
        return choice_of(self.target, self.sweep.power_mode)

    @property
    def seconds(self) -> float | None:
        """The time limit of its schedule; None if it has none, and under emulation, which does not use it."""
        return None if self.target == "emulated" else self.sweep.schedule.time_limit_s

    def config(self, program: Path, output_root: Path, target: Target) -> ProfileConfig:
        """What to measure: one experiment per rung, each other rung compared with `on`. `target` must be
        open, because a ladder asks it for its CPU's features."""
        rungs = tuple(
            RungAsked(rung.name, rung.disable, tuple(c.threads for c in self.cells if c.rung == rung.name))
            for rung in self.rungs
        )
        sweep = self.sweep
        config = make_rung_config(
            target, program, output_root, rungs, sweep.schedule, runs=sweep.runs, warmup=sweep.warmup
        )
        return config.model_copy(update={"method": self.case.method, "inputs": self.case.inputs})

    def fed(self, program: Path) -> tuple[str, Feed]:
        """The method and its inputs; an error if `program` cannot take them."""
        method = one_method(program, self.case.method)
        return method, feed(program, method, self.case.inputs)


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The state of a cell. `reason` and `fix` are for a failed or left-out cell. `run_dir` is relative to the
    sweep's folder."""

    cell: Cell
    state: CellState = "waiting"
    reason: str = ""
    fix: str = ""
    run_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """`cells.json`: every cell of a sweep, once."""

    schema_version: int = 1
    name: str
    began: str
    ended: str | None = None
    cells: tuple[CellRecord, ...] = ()

    def counts(self) -> dict[CellState, int]:
        return dict(Counter(record.state for record in self.cells))

    @property
    def has_ended(self) -> bool:
        return not any(record.state == "waiting" for record in self.cells)


def read_sweep_record(folder: Path) -> SweepRecord:
    return read_record(SweepRecord, folder / CELLS, "start the sweep again with --restart")


def write_sweep_record(folder: Path, record: SweepRecord) -> None:
    files.write_json(folder / CELLS, record_json(record))


def all_cells(sweep: SweepConfig) -> tuple[CellRecord, ...]:
    """Every combination once, in the order of the file: waiting, or left out with a reason."""
    return tuple(
        CellRecord(cell, "left out", reason)
        if (reason := unsupported or _excluded(sweep, cell))
        else CellRecord(cell)
        for program, unsupported in _programs(sweep)
        for case in sweep.cases_of(program.model)
        for target in sweep.targets
        for rung in sweep.rungs
        for threads in sweep.threads
        for cell in (Cell(program, threads, rung.name, target, case.name),)
    )


def jobs(sweep: SweepConfig) -> tuple[Job, ...]:
    """The cells that are measured, by program, case and target, in the order of the file."""
    groups: dict[str, list[Cell]] = {}
    for record in all_cells(sweep):
        if record.state != "left out":
            groups.setdefault(record.cell.job_id, []).append(record.cell)
    return tuple(Job(tuple(group), sweep) for group in groups.values())


def _programs(sweep: SweepConfig) -> Iterator[tuple[Program, str]]:
    """Each program, with the reason if it is left out."""
    for model in sweep.models:
        if model.endswith(".pte"):
            stem = Path(model).stem
            _, variant = variant_of(Path(model))
            known = (format_of_name(stem), variant.partition("_")[0]) if variant != stem else ()
            yield Program(stem, model, *known), ""
            continue
        for dtype in sweep.dtypes:
            for backend in sweep.backends:
                name = sweep.program_name(model, dtype, backend)
                given = sweep.keep.get(model, ()), sweep.calibrate.get(model)
                yield Program(name, model, dtype, backend, *given), _unsupported(model, dtype)


def _unsupported(model: str, dtype: str) -> str:
    chosen = registry.choose(model)
    if chosen is None:
        return ""
    try:
        registry.discover()[chosen.model].check_dtype(dtype)
    except InputError as problem:
        return problem.problem
    return ""


def _excluded(sweep: SweepConfig, cell: Cell) -> str:
    """The exclusion that applies, and why; empty for a cell that is measured."""
    values = cell.values
    for place, exclusion in enumerate(sweep.exclude):
        if all(values[name] in wanted for name, wanted in exclusion.matched.items()):
            return f"exclude[{place}]{f': {exclusion.why}' if exclusion.why else ' of the sweep'}"
    return ""


def program_path(program: Program, artifacts: Path) -> Path:
    return Path(program.model) if program.is_exported else artifacts / f"{program.name}.pte"


def sweep_seconds(jobs: Iterable[Job]) -> float:
    """How long measuring takes at most: targets in parallel, the jobs of a target one after the other. What
    is exported, emulated or has no limit does not count."""
    by_target: dict[str, float] = {}
    for job in jobs:
        by_target[job.target] = by_target.get(job.target, 0.0) + (job.seconds or 0.0)
    return max(by_target.values(), default=0.0)
