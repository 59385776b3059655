"""What a sweep is going to cost: launches, time and disk, as far as that can be known before it runs.

Where latencies are measured, the schedule bounds the time. Under emulation the program's arithmetic tells it,
so that one which is not exported yet has no known cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from model_profiling.config.settings import Schedule
from model_profiling.config.sweep import LADDER
from model_profiling.errors import FormatError
from model_profiling.pipeline.emulation_time import emulated_seconds
from model_profiling.pipeline.sampling import SECONDS as SAMPLING_S
from model_profiling.pipeline.schedule import TRACED_ROUNDS
from model_profiling.program import read_program
from model_profiling.runner.features import FEATURES
from model_profiling.sweep.records import Job, Program

NOT_EXPORTED = "not known before it is exported"
NOT_MEASURED = "not known before it is measured"
_PAGES = 2_500_000
"""Bytes of a run's reports, whatever its program."""
_PER_OPERATOR = 140
"""Bytes of dump and tables for one operator in one traced inference."""
_TURN = 4
"""Inferences that a traced turn has at most."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """Of one job. None is what cannot be known yet, and `unknown` says why."""

    job: Job
    launches: tuple[int, int]
    """At least and at most."""
    seconds: float | None
    bytes: int | None
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class SweepCost:
    jobs: tuple[JobCost, ...]
    exports: int
    """Programs that have to be exported first."""

    @property
    def launches(self) -> tuple[int, int]:
        return sum(each.launches[0] for each in self.jobs), sum(each.launches[1] for each in self.jobs)

    @property
    def bytes(self) -> int:
        """Of the jobs where it is known."""
        return sum(each.bytes or 0 for each in self.jobs)

    @property
    def unknown(self) -> int:
        """Jobs of which no time is known."""
        return sum(each.seconds is None for each in self.jobs)

    def seconds(self, *, alone: bool) -> float:
        """How long it takes by what is known: targets are measured side by side, those of this machine one
        after the other where it works `alone`."""
        return longest(
            (lane_of(each.job.target) if alone else each.job.target, each.seconds or 0.0)
            for each in self.jobs
        )


def longest(parts: Iterable[tuple[str, float]]) -> float:
    """The most that any lane takes, where parts of one lane come one after the other."""
    lanes: dict[str, float] = {}
    for lane, seconds in parts:
        lanes[lane] = lanes.get(lane, 0.0) + seconds
    return max(lanes.values(), default=0.0)


def lane_of(target: str) -> str:
    """Targets of one lane are never measured at the same time: a machine that emulates is not quiet."""
    return "host" if target == "emulated" else target


def sweep_cost(jobs: Iterable[Job], artifacts: Path) -> SweepCost:
    """The cost of `jobs`; programs that are exported already lie in `artifacts`."""
    listed = tuple(jobs)
    paths = {job.program: program_path(job.program, artifacts) for job in listed}
    costs = tuple(job_cost(job, paths[job.program]) for job in listed)
    return SweepCost(costs, sum(path is None for path in paths.values()))


def program_path(program: Program, artifacts: Path) -> Path | None:
    """Where a program lies; None where it has to be exported."""
    path = Path(program.model) if program.exported else artifacts / f"{program.name}.pte"
    return path if path.is_file() else None


def job_cost(job: Job, program: Path | None) -> JobCost:
    schedule, series = job.measure.schedule, _series(job)
    if job.target == "emulated":
        seconds = None if program is None else series * emulated_seconds(program)
        launches, inferences = (series, series), 1
    else:
        seconds = _measured_seconds(job, series)
        launches = _launches(schedule)
        turns = job.measure.runs * (_TURN if schedule.in_lockstep else 1)
        inferences = min(TRACED_ROUNDS, launches[1]) * turns
    size = None if program is None else _PAGES + _PER_OPERATOR * _operators(program) * inferences * series
    known = NOT_EXPORTED if program is None else "" if seconds is not None else NOT_MEASURED
    return JobCost(job, launches, seconds, size, known)


def _series(job: Job) -> int:
    """How many series it has at most: a ladder's depend on the CPU."""
    rungs = len(FEATURES) + 1
    return sum(rungs if cell.rung == LADDER else 1 for cell in job.cells)


def _launches(schedule: Schedule) -> tuple[int, int]:
    most = schedule.most_rounds
    exact = not schedule.in_lockstep and schedule.precision is None and schedule.budget_s is None
    return (most if exact else min(schedule.min_rounds, most)), most


def _measured_seconds(job: Job, series: int) -> float | None:
    """As the schedule bounds it; a slow model takes longer: it is launched as often as a verdict needs."""
    schedule = job.measure.schedule
    if schedule.time_limit_s is None:
        return None
    energy = series * schedule.energy_s if job.choice.kind == "android" else 0.0
    return schedule.time_limit_s + energy + (series * SAMPLING_S if schedule.sample else 0.0)


def _operators(program: Path) -> int:
    try:
        methods = read_program(program).methods
    except (FormatError, OSError):
        return 0  # whoever runs it says what is wrong with it
    return sum(
        len(method.instructions) + sum(len(each.nodes) for each in method.delegates) for method in methods
    )
