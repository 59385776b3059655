"""The cells and jobs of a sweep, and the combinations that it leaves out, with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from model_profiling.config.settings import ProfileConfig, Schedule
from model_profiling.config.sweep import LADDER, USUAL, Rung, SweepCase, SweepConfig, choice_of
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.number_formats import format_of_name
from model_profiling.core.records import read_record, record_json
from model_profiling.models import registry
from model_profiling.pipeline.feeding import Feed, feed
from model_profiling.pipeline.open_run import SECONDS as SAMPLING_S
from model_profiling.pipeline.schedule import TRACED_ROUNDS, emulated_seconds
from model_profiling.pipeline.start import one_method
from model_profiling.program import read_program
from model_profiling.run.names import variant_of, with_method
from model_profiling.runner.features import FEATURES
from model_profiling.runner.machine import PowerMode, TargetChoice, place_of
from model_profiling.targets import Target
from model_profiling.workflow.measure import RungAsked, make_rung_config

# A cell is what people count: one model in one dtype for one backend, one case (a method and its inputs), at
# some number of threads, on one rung, on one target. A job is all cells of one program and case on a target:
# they take turns in one run directory. Every change rewrites the record of all cells (`cells.json`), so that
# it shows where a killed sweep was.

CELLS = "cells.json"
SWEEP = "sweep.json"
ARTIFACTS = "artifacts"
RUNS = "runs"

CellState = Literal["waiting", "running", "done", "failed", "left out"]
ENDED: frozenset[CellState] = frozenset({"done", "failed", "left out"})


@dataclass(frozen=True, slots=True)
class Program:
    """One export. `model` is a .pte file or what `find_or_export` takes; `name`, the file's stem, is
    unique."""

    name: str
    model: str
    dtype: str | None = None
    backend: str | None = None
    keep: tuple[str, ...] = ()
    calibration: str | None = None

    @property
    def exported(self) -> bool:
        return self.model.endswith(".pte")


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
        return {
            "model": self.program.model,
            "case": self.case,
            "dtype": self.program.dtype,
            "backend": self.program.backend,
            "threads": self.threads,
            "rung": self.rung,
            "target": self.target,
        }


@dataclass(frozen=True, slots=True)
class Measure:
    runs: int = 10
    warmup: int = 3
    schedule: Schedule = field(default_factory=Schedule)
    power_mode: PowerMode = "leave"


@dataclass(frozen=True, slots=True)
class Job:
    """All cells of one program's case on one target: one run directory, `runs/<program>/<place>` of the
    sweep, with the case after the program's name."""

    program: Program
    target: str
    cells: tuple[Cell, ...]
    rungs: tuple[Rung, ...]
    measure: Measure = field(default_factory=Measure)
    case: SweepCase = USUAL

    @property
    def id(self) -> str:
        return self.cells[0].job_id

    @property
    def run_dir(self) -> str:
        """Relative to the sweep's folder."""
        return f"{RUNS}/{self.id}"

    @property
    def choice(self) -> TargetChoice:
        return choice_of(self.target, self.measure.power_mode)

    def config(self, program: Path, output_root: Path, target: Target) -> ProfileConfig:
        """What to measure: one experiment per rung, each other rung compared with `on`. `target` must be
        open, because a ladder asks it for its CPU's features."""
        asked = tuple(RungAsked(rung.name, rung.disable, self.threads_of(rung.name)) for rung in self.rungs)
        measure = self.measure
        config = make_rung_config(
            target, program, output_root, asked, measure.schedule, runs=measure.runs, warmup=measure.warmup
        )
        return config.model_copy(update={"method": self.case.method, "inputs": self.case.inputs})

    def threads_of(self, rung: str) -> tuple[int, ...]:
        return tuple(cell.threads for cell in self.cells if cell.rung == rung)


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The state of a cell. `reason` and `fix` are for a failed or left-out cell, or say what a waiting one
    waits for. `run_dir` is relative to the sweep's folder."""

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
    """The worker's device on which a target that names none (`host`) was measured."""
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
    return read_record(SweepRecord, folder / CELLS, "start the sweep again with --restart")


def write_sweep_record(folder: Path, record: SweepRecord) -> None:
    """Write one line per cell: quick to write at every change, and readable."""
    content = record_json(record)
    cells = content.pop("cells")
    head = json.dumps(content, ensure_ascii=False).removesuffix("}")
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in cast("list[object]", cells))
    files.write_text(folder / CELLS, f'{head}, "cells": [\n{lines}\n]}}\n')


def all_cells(sweep: SweepConfig) -> tuple[CellRecord, ...]:
    """Every combination once, in the order of the file: waiting, or left out with a reason."""
    return tuple(
        CellRecord(cell, "left out", reason)
        if (reason := left_out or _excluded(sweep, cell))
        else CellRecord(cell)
        for program, left_out in _programs(sweep)
        for case in sweep.cases_of(program.model)
        for target in sweep.targets
        for rung in sweep.rungs
        for threads in sweep.threads
        for cell in (Cell(program, threads, rung.name, target, case.name),)
    )


def cells(sweep: SweepConfig) -> tuple[Cell, ...]:
    return tuple(each.cell for each in all_cells(sweep) if each.state != "left out")


def jobs(sweep: SweepConfig) -> tuple[Job, ...]:
    """The cells that are measured, by program and target, in the order of the file."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(sweep):
        groups.setdefault(cell.job_id, []).append(cell)
    measure = Measure(sweep.runs, sweep.warmup, sweep.schedule, sweep.power_mode)
    return tuple(
        Job(
            group[0].program,
            group[0].target,
            tuple(group),
            tuple(rung for rung in sweep.rungs if any(cell.rung == rung.name for cell in group)),
            measure,
            next(case for case in sweep.cases_of(group[0].program.model) if case.name == group[0].case),
        )
        for group in groups.values()
    )


def check_cases(jobs: Iterable[Job]) -> None:
    """Refuse a case that a program cannot take, if it was exported before the sweep."""
    for job in jobs:
        if job.program.exported:
            _fed(job, Path(job.program.model))


def _fed(job: Job, program: Path) -> tuple[str, Feed]:
    method = one_method(program, job.case.method)
    return method, feed(program, method, job.case.inputs)


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


# The cost of a sweep: launches, time and disk, as far as known before it runs. Where latencies are measured,
# the schedule limits the time. Under emulation it follows from the program's arithmetic, so that a program
# which is not exported yet has no known cost.

NOT_EXPORTED = "not known before it is exported"
NOT_MEASURED = "not known before it is measured"
_PAGES = 2_500_000
"""Bytes of a run's reports, for any program."""
_PER_OPERATOR = 140
"""Bytes of dump and tables per operator and traced inference."""
_TURN = 4
"""The most inferences in a traced turn."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """None means not known yet, and `unknown` says why."""

    job: Job
    launches: tuple[int, int]
    """Minimum and maximum."""
    seconds: float | None
    bytes: int | None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class SweepCost:
    jobs: tuple[JobCost, ...]
    exports: int

    @property
    def launches(self) -> tuple[int, int]:
        return sum(each.launches[0] for each in self.jobs), sum(each.launches[1] for each in self.jobs)

    @property
    def bytes(self) -> int:
        """Of the jobs whose size is known."""
        return sum(each.bytes or 0 for each in self.jobs)

    @property
    def unknown(self) -> int:
        return sum(each.seconds is None for each in self.jobs)

    def seconds(self, *, alone: bool) -> float:
        """The known duration: targets in parallel, but those of this machine in turn if it works `alone`."""
        return longest(
            (lane_of(each.job.target) if alone else each.job.target, each.seconds or 0.0)
            for each in self.jobs
        )


def longest(parts: Iterable[tuple[str, float]]) -> float:
    """The duration of the slowest lane; the parts of a lane come one after the other."""
    lanes: dict[str, float] = {}
    for lane, seconds in parts:
        lanes[lane] = lanes.get(lane, 0.0) + seconds
    return max(lanes.values(), default=0.0)


def lane_of(target: str) -> str:
    """Targets of one lane are never measured at the same time: a machine that emulates is not quiet."""
    return "host" if target == "emulated" else target


def sweep_cost(jobs: Iterable[Job], artifacts: Path) -> SweepCost:
    listed = tuple(jobs)
    paths = {job.program: program_path(job.program, artifacts) for job in listed}
    costs = tuple(job_cost(job, paths[job.program]) for job in listed)
    return SweepCost(costs, sum(path is None for path in paths.values()))


def program_path(program: Program, artifacts: Path) -> Path | None:
    path = Path(program.model) if program.exported else artifacts / f"{program.name}.pte"
    return path if path.is_file() else None


def job_cost(job: Job, program: Path | None) -> JobCost:
    schedule, series = job.measure.schedule, _series(job)
    if job.target == "emulated":
        seconds = None if program is None else series * _emulated_seconds(job, program)
        launches, inferences = (series, series), 1
    else:
        seconds = _measured_seconds(job, series)
        launches = _launches(schedule)
        turns = job.measure.runs * (_TURN if schedule.in_lockstep else 1)
        inferences = min(TRACED_ROUNDS, launches[1]) * turns
    size = None if program is None else _PAGES + _PER_OPERATOR * _operators(program) * inferences * series
    known = NOT_EXPORTED if program is None else "" if seconds is not None else NOT_MEASURED
    return JobCost(job, launches, seconds, size, known)


def _emulated_seconds(job: Job, program: Path) -> float:
    try:
        method, fed = _fed(job, program)
    except InputError:
        return 0.0  # running it will say what is wrong
    return emulated_seconds(program, method, fed.lengths)


def _series(job: Job) -> int:
    """The most series it can have: a ladder's depend on the CPU."""
    rungs = len(FEATURES) + 1
    return sum(rungs if cell.rung == LADDER else 1 for cell in job.cells)


def _launches(schedule: Schedule) -> tuple[int, int]:
    most = schedule.most_rounds
    exact = not schedule.in_lockstep and schedule.precision is None and schedule.budget_s is None
    return (most if exact else min(schedule.min_rounds, most)), most


def _measured_seconds(job: Job, series: int) -> float | None:
    """The schedule's limit. A slow model takes longer: it is launched as often as a verdict needs."""
    schedule = job.measure.schedule
    if schedule.time_limit_s is None:
        return None
    energy = series * schedule.energy_s if job.choice.kind == "android" else 0.0
    return schedule.time_limit_s + energy + (series * SAMPLING_S if schedule.sample else 0.0)


def _operators(program: Path) -> int:
    try:
        methods = read_program(program).methods
    except (FormatError, OSError):
        return 0  # running it will say what is wrong
    return sum(
        len(method.instructions) + sum(len(each.nodes) for each in method.delegates) for method in methods
    )
