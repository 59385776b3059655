"""Runs a job on the machine behind a transport: checked, sent, run, its log kept, and collected."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from model_profiling.core import files, process
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.process import Completed
from model_profiling.runner.features import closure
from model_profiling.runner.result import check_program
from model_profiling.targets.collect import (
    ExpectedFile,
    collect,
    collect_lockstep,
    expected_files,
    expected_files_of_launch,
)
from model_profiling.targets.command import (
    BOUNDARIES,
    ETDUMP,
    GAUGE,
    LOG,
    OUTPUTS,
    RESULT,
    SEEN,
    Abilities,
    Places,
    build_command,
    build_lockstep_command,
    child_files,
    known_abilities,
    learn,
)
from model_profiling.targets.device import state
from model_profiling.targets.protocol import Job, LockstepJob, LockstepOutcome, Outcome

# Which jobs can take turns in one launch: where they cannot, whoever schedules them measures in rounds.

# A process that has not run yet: its program, the weights packed once more, and what every process needs.
_COPIES = 2
_EVERY_PROCESS = 64 << 20
# What stays free for everybody else.
_RESERVE = 0.1


def unfit_for_turns(jobs: Sequence[Job]) -> str | None:
    """What about these jobs no launch can do, or None."""
    if any(job.runner_path for job in jobs):
        return "an executor_runner cannot take turns"
    if any(job.kernels for job in jobs):
        return "kernels are counted in a run of their own, not in turns"
    if len({job.cpu_affinity for job in jobs}) > 1:
        return "jobs pinned to different CPUs cannot take turns"
    return None


def too_large_together(
    jobs: Sequence[Job], peaks: Mapping[Path, int], available_bytes: int | None
) -> str | None:
    """Why memory does not hold all jobs at once; None when it does, or when nobody knows.

    A program's need is the peak memory of an earlier process of it (`peaks`), or a guess from its size.
    """
    if available_bytes is None:
        return None
    need = sum(peaks.get(job.model) or job.model.stat().st_size * _COPIES + _EVERY_PROCESS for job in jobs)
    if need <= available_bytes * (1 - _RESERVE):
        return None
    return (
        f"{plural(len(jobs), 'program')} at once need about {need / 2**30:.1f} GiB of memory, "
        f"{available_bytes / 2**30:.1f} GiB is free"
    )


class Transport(Protocol):
    """The way to the machine a job runs on. A `Path` is on this machine, a `str` is a path there."""

    def make_folder(self, into: Path) -> str:
        """A folder there for what one job writes; it ends up in `into` here."""

    def put(self, file: Path) -> str:
        """Bring `file` there unless it is there already, and say where that is."""

    def put_runner(self, file: Path) -> tuple[str, ...]:
        """Bring a runner of the user's own there, and say what starts it."""

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        """Run `argv` there for the job with this `folder`, on `cores` alone if any are named; at `timeout`
        seconds it is stopped with all it started. The `argv` in the answer is what a person would type
        here."""

    def fetch(self, folder: str, wanted: Sequence[ExpectedFile], into: Path) -> None:
        """Bring those files in a job's folder that are `wanted` to `into`; whatever else is there stays."""

    def remove(self, folder: str) -> None:
        """Remove a job's folder. A machine that has gone is no error here: running the job said so."""


@dataclass(frozen=True, slots=True)
class LocalTransport:
    """This machine, where every file is in its place already; `prefix` stands in front of each command."""

    prefix: tuple[str, ...] = ()

    def make_folder(self, into: Path) -> str:
        return str(into)

    def put(self, file: Path) -> str:
        return str(file)

    def put_runner(self, file: Path) -> tuple[str, ...]:
        return (str(file),)

    def run(
        self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]
    ) -> process.Completed:
        del folder
        words = (*_pinning(cores), *self.prefix, *argv)
        return process.run(words, timeout=timeout, leaves_nothing=True)

    def fetch(self, folder: str, wanted: Sequence[ExpectedFile], into: Path) -> None:
        """The job wrote into `into` itself."""

    def remove(self, folder: str) -> None:
        """The folder is `into`, which stays."""


def _pinning(cores: Sequence[int]) -> tuple[str, ...]:
    if not cores:
        return ()
    if sys.platform != "linux":
        raise InputError(
            "cpu_affinity cannot be set on this system", "leave it out; only Linux pins processes"
        )
    known = os.cpu_count() or 1
    if beyond := [core for core in cores if not 0 <= core < known]:
        raise InputError(f"there is no CPU {beyond[0]}", f"choose from 0 to {known - 1}")
    if shutil.which("taskset") is None:
        raise SetupError("cpu_affinity needs taskset", "install util-linux or leave cpu_affinity out")
    return ("taskset", "--cpu-list", ",".join(map(str, cores)))


@dataclass(frozen=True, slots=True)
class Route:
    """How jobs reach a place: what starts the kit's runner there (empty when nothing was prepared), the way,
    the folders here that hold the libraries it runs with, and whether times there are latencies."""

    runner: tuple[str, ...]
    transport: Transport
    code: tuple[Path, ...] = ()
    timings_are_latency: bool = True


# The kit's runner ends itself at the limit; it is killed only when it could not.
_GRACE_S = 5.0


def execute(job: Job, into: Path, stem: str, route: Route) -> Outcome:
    """Run `job` at the end of `route` and collect what it left in `into`."""
    check_job(job)
    own, wanted = job.runner_path, job
    _check_prepared(own is None and not route.runner)
    while True:
        able = known_abilities(own) if own else Abilities()
        job = able.fitted(wanted) if own else wanted

        def command(places: Sequence[Places], job: Job = job, able: Abilities = able) -> tuple[str, ...]:
            start = route.transport.put_runner(own) if own else route.runner
            words = build_command(job, start, places[0], able)
            return state.metered(words, job.gauge, f"{places[0].files}{state.ENDING}") if job.gauge else words

        done = _launch(
            *(route.transport, into, stem),
            jobs={stem: job},
            command=command,
            left=expected_files(job, stem),
            limit_s=job.timeout_s + (_GRACE_S if own is None else 0.0),
            cores=job.cpu_affinity,
        )
        if own is None or not learn(own, done):
            break
    latency = route.timings_are_latency
    outcome = collect(job, done, into / stem, timings_are_latency=latency, code=route.code)
    if job.etdump == wanted.etdump:
        return outcome
    if outcome.etdump is not None:  # made only for the times in it
        outcome.etdump.unlink()
    return replace(outcome, etdump=None, boundaries=None, etdump_warmup_runs=0)


def execute_lockstep(job: LockstepJob, into: Path, stem: str, route: Route) -> LockstepOutcome:
    """Run a launch and collect what it left in `into`, as `execute` does for one job."""
    check_launch(job)
    _check_prepared(not route.runner)
    done = _launch(
        *(route.transport, into, stem),
        jobs={child_files(stem, number): child for number, child in enumerate(job.jobs)},
        command=lambda places: build_lockstep_command(job, route.runner, places),
        left=expected_files_of_launch(job, stem),
        limit_s=job.timeout_s + _GRACE_S,
        cores=job.cpu_affinity,
    )
    return collect_lockstep(job, done, into / stem, timings_are_latency=route.timings_are_latency)


def _check_prepared(lacks_runner: bool) -> None:
    if lacks_runner:
        raise RunError("the target was not prepared", "call prepare() first")


def _launch(
    transport: Transport,
    into: Path,
    stem: str,
    *,
    jobs: Mapping[str, Job],
    command: Callable[[Sequence[Places]], tuple[str, ...]],
    left: Sequence[ExpectedFile],
    limit_s: float,
    cores: Sequence[int],
) -> Completed:
    """Run one process for `jobs` (by the stem of their files): send, run, keep the log, fetch `left`."""
    files.make_folder(into)
    for each in (stem, *jobs):
        _clear(into, each)
    folder = transport.make_folder(into)
    try:
        places = [
            Places(transport.put(job.model), tuple(map(transport.put, job.inputs)), f"{folder}/{each}")
            for each, job in jobs.items()
        ]
        done = transport.run(command(places), folder=folder, timeout=limit_s, cores=cores)
        log = f"$ {shlex.join(done.argv)}\n{done.stdout}{done.stderr}"
        files.write_text(into / f"{stem}{LOG}", log)
        if done.ok:
            transport.fetch(folder, left, into)
    finally:
        transport.remove(folder)
    return done


def check_launch(job: LockstepJob) -> None:
    """Refuse what the runner could not take turns with."""
    for child in job.jobs:
        check_job(child)
    if reason := unfit_for_turns(job.jobs):
        raise InputError(reason, "measure them in rounds of their own")
    positive = [value for value in (job.cycles, job.budget_s) if value is not None]
    if not job.jobs or not positive or min(*positive, job.turn_length) <= 0 or job.order_seed < 0:
        raise InputError(
            f"{len(job.jobs)} jobs, cycles={job.cycles}, budget_s={job.budget_s}, "
            f"turn_length={job.turn_length}, order_seed={job.order_seed} cannot be run",
            "name a job, and cycles or a budget above 0",
        )


def check_job(job: Job) -> None:
    """Refuse what no runner could use, and what the one named cannot do: nothing asked for is left out."""
    check_program(job.model)
    closure(job.disable)
    if job.runs < 1 or job.warmup < 0 or job.threads < 1:
        raise InputError(
            f"runs={job.runs}, warmup={job.warmup}, threads={job.threads} cannot be run",
            "runs and threads start at 1, warm-up at 0",
        )
    for path in job.inputs:
        if not path.is_file():
            raise InputError(f"there is no input file {path}", "give one raw file for each tensor input")
    own = job.runner_path
    if own is None:
        return
    if not own.is_file():
        raise SetupError(f"there is no runner {own}", "build it or correct runner_path")
    if not os.access(own, os.X_OK):
        raise SetupError(f"{own} is not executable", "correct runner_path or its permissions")
    if job.disable:
        raise InputError(
            f"an executor_runner cannot switch {', '.join(job.disable)} off",
            'use runner_path "builtin", or a runner built without it',
        )
    if job.kernels or job.save_outputs or job.sample_hz:
        raise InputError(
            "an executor_runner neither counts kernels, nor looks at threads, nor keeps raw outputs",
            'use runner_path "builtin"',
        )


def _clear(into: Path, stem: str) -> None:
    """Nothing an earlier run left may pass for the work of this one."""
    kept = into.glob(f"{glob.escape(stem + OUTPUTS)}[0-9]*.bin")
    endings = (LOG, ETDUMP, BOUNDARIES, RESULT, GAUGE, SEEN)
    for path in (*(into / f"{stem}{ending}" for ending in endings), *kept):
        path.unlink(missing_ok=True)


class RunnerTarget(ABC):
    """What every target has in common: jobs run on the machine at the end of its route."""

    @abstractmethod
    def _route(self, *, own_runner: bool) -> Route:
        """The route of the next job, which brings a runner of its own or not."""

    @abstractmethod
    def _available_bytes(self) -> int | None:
        """Memory that new processes can take; None where nobody knows."""

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        return execute(job, into, stem, self._route(own_runner=job.runner_path is not None))

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        return execute_lockstep(job, into, stem, self._route(own_runner=False))

    def why_not_lockstep(self, jobs: Sequence[Job], peaks: Mapping[Path, int]) -> str | None:
        return unfit_for_turns(jobs) or too_large_together(jobs, peaks, self._available_bytes())
