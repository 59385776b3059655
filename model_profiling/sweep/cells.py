"""Which cells and jobs a sweep comes to, and which combinations it leaves out, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config.sweep import SweepConfig
from model_profiling.errors import InputError
from model_profiling.models import registry
from model_profiling.models.catalog import file_name_of
from model_profiling.run.names import variant_of
from model_profiling.sweep.records import Cell, CellRecord, Job, Measure, Program


@dataclass(frozen=True, slots=True)
class _Found:
    program: Program
    model: str
    """As exclusions name it."""
    left_out: str = ""


def all_cells(sweep: SweepConfig) -> tuple[CellRecord, ...]:
    """Every combination once, in the order of the file: waiting, or left out with its reason."""
    return tuple(
        CellRecord(cell, "left out", reason)
        if (reason := found.left_out or _excluded(sweep, cell))
        else CellRecord(cell)
        for found in _programs(sweep)
        for target in sweep.targets
        for rung in sweep.rungs
        for threads in sweep.threads
        for cell in (Cell(found.program, threads, rung.name, target),)
    )


def cells(sweep: SweepConfig) -> tuple[Cell, ...]:
    """Those that are measured."""
    return tuple(each.cell for each in all_cells(sweep) if each.state != "left out")


def jobs(sweep: SweepConfig) -> tuple[Job, ...]:
    """What is measured, by program and target, in the order of the file."""
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
        )
        for group in groups.values()
    )


def programs(sweep: SweepConfig) -> tuple[Program, ...]:
    """What is exported or taken as it is, each once."""
    return tuple(dict.fromkeys(cell.program for cell in cells(sweep)))


def _programs(sweep: SweepConfig) -> Iterator[_Found]:
    for model in sweep.models:
        if model.endswith(".pte"):
            stem = Path(model).stem
            backend, _, dtype = variant_of(Path(model))[1].partition("_")
            known = variant_of(Path(model))[1] != stem
            yield _Found(Program(stem, model, dtype if known else None, backend if known else None), model)
            continue
        for dtype in sweep.dtypes:
            for backend in sweep.backends:
                name = f"{file_name_of(model)}_{backend}_{dtype}"
                yield _Found(Program(name, model, dtype, backend), model, _unsupported(model, dtype))


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
    """By which exclusion, and why; empty for a cell that is measured."""
    values = cell.values
    for place, exclusion in enumerate(sweep.exclude):
        if all(values[name] in wanted for name, wanted in exclusion.matched.items()):
            return f"exclude[{place}]{f': {exclusion.why}' if exclusion.why else ' of the sweep'}"
    return ""
