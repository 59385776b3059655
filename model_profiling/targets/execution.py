"""The base of all targets: runs a job on the machine behind a transport (check, send, run, keep the log,
collect). A kind of target derives from `Target` and is one row in `targets._KINDS`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.core.process import Completed
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.features import closure
from model_profiling.runner.machine import MachineFacts, PlatformName, TargetChoice
from model_profiling.targets.collect import collect, collect_lockstep, is_left_by_job
from model_profiling.targets.job import (
    LOG,
    Job,
    LockstepJob,
    LockstepOutcome,
    Outcome,
    Places,
    build_command,
    build_lockstep_command,
    child_files,
    is_before_1_3,
)

# The kit's runner stops itself at the limit; it is killed only if it could not.
_GRACE_S = 5.0


class Target(ABC):
    """A place where programs run; the defaults are those of this machine."""

    is_here = True
    """Whether jobs run on this machine, which others may use too."""
    build: RunnerBuild | None = None
    """The kit's runner, once prepared."""
    _why_no_runner: SetupError | None = None
    """Why it cannot be had there, where only a user's own runner can be used."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that the user gave it."""

    @property
    @abstractmethod
    def choice(self) -> TargetChoice:
        """The choice that opens it again."""

    @property
    @abstractmethod
    def platform(self) -> PlatformName:
        """The kind of machine."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The folder for its runs; two machines of one kind have different ones."""

    @property
    @abstractmethod
    def timings_are_latency(self) -> bool:
        """False if times there differ from those of the hardware described."""

    @abstractmethod
    def prepare(self) -> None:
        """Prepare everything that a job needs, or raise an error. Safe to repeat."""

    @abstractmethod
    def facts(self) -> MachineFacts:
        """Return the current facts of the machine."""

    def _route(self) -> Route:
        """Return the route of the next job."""
        raise NotImplementedError

    @contextmanager
    def held_ready(self) -> Iterator[None]:
        """Hold the machine and apply the requested settings during the block; always restore them."""
        yield

    def take_notes(self) -> tuple[str, ...]:
        """Return, once, what a person should know of settings that were changed and restored."""
        return ()

    def operators(self) -> frozenset[str] | None:
        """Return the operators that the kit's runner has there; None if it was not prepared."""
        return None

    def libraries_with(self, operators: Iterable[str]) -> tuple[Path, ...]:
        """Return libraries that its runner can open and that have all `operators`, if there are any."""
        del operators
        return ()

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        """Run `job`; its files are `into`/`stem` plus a suffix. A user's runner from before ExecuTorch
        1.3 is run again with the flags that it knows, and a dump, which has its times."""
        check_job(job)
        own, route = job.runner_path, self._route()
        if own is None and not route.runner:
            raise self._why_no_runner or RunError(*_NOT_PREPARED)
        for before_1_3 in (False, True):
            fitted = replace(job, etdump=True) if before_1_3 else job
            with _sent(route.transport, into, stem, {stem: fitted}) as (folder, places):
                start = route.transport.put_runner(own) if own else route.runner
                done = route.transport.run(
                    build_command(fitted, start, places[0], before_1_3=before_1_3),
                    folder=folder,
                    timeout=job.timeout_s + (_GRACE_S if own is None else 0.0),
                    cores=job.cpu_affinity,
                )
                _bring(route.transport, done, folder, into / stem)
            if own is None or not is_before_1_3(done):
                break
        outcome = collect(fitted, done, into / stem, route.code)
        if fitted.etdump == job.etdump:
            return outcome
        if outcome.etdump is not None:  # made only for its times
            outcome.etdump.unlink()
        return replace(outcome, etdump=None, boundaries=None, etdump_warmup_runs=0)

    def execute_lockstep(self, job: LockstepJob, into: Path, stem: str) -> LockstepOutcome:
        """Run the launch; its files are `into`/`stem` plus a suffix, those of job N `stem_childN`."""
        for child in job.jobs:
            check_job(child)
        if reason := self.why_not_lockstep(job.jobs):
            raise InputError(reason, "measure them one by one")
        route = self._route()
        if not route.runner:
            raise self._why_no_runner or RunError(*_NOT_PREPARED)
        jobs = {child_files(stem, number): child for number, child in enumerate(job.jobs)}
        with _sent(route.transport, into, stem, jobs) as (folder, places):
            done = route.transport.run(
                build_lockstep_command(job, route.runner, places),
                folder=folder,
                timeout=job.timeout_s + _GRACE_S,
                cores=job.cpu_affinity,
            )
            _bring(route.transport, done, folder, into / stem)
        return collect_lockstep(job, done, into / stem)

    def why_not_lockstep(self, jobs: Sequence[Job]) -> str | None:
        """Return why these jobs cannot take turns in a launch, or None."""
        if any(job.runner_path for job in jobs):
            return "an executor_runner cannot take turns"
        if any(job.kernels for job in jobs):
            return "kernels are counted in a run of their own, not in turns"
        if len({job.cpu_affinity for job in jobs}) > 1:
            return "jobs pinned to different CPUs cannot take turns"
        return None

    def clean(self) -> bool:
        """Remove everything that the kit put on the machine, unless a run is using it; return whether there
        was anything."""
        raise InputError(f"the kit puts nothing on target {self.name}", "give android:SERIAL or ssh:HOST")

    def close(self) -> None:
        """End the connection to the machine, if there is one."""
        return


class Transport:
    """The way to the machine that runs a job. A `Path` is on this machine, a `str` is a path on that one.
    This one is for this machine, where every file is in place already; `prefix` precedes each command."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        self.prefix = prefix

    def make_folder(self, into: Path) -> str:
        """Make a folder there for the files of one job, which end up in `into` here."""
        return str(into)

    def put(self, file: Path) -> str:
        """Send `file` unless it is there already; return its path there."""
        return str(file)

    def put_runner(self, file: Path) -> tuple[str, ...]:
        """Send a user's own runner; return the command that starts it."""
        return (str(file),)

    def run(self, argv: Sequence[str], *, folder: str, timeout: float, cores: Sequence[int]) -> Completed:
        """Run `argv` there for the job with this `folder`, on `cores` only if any are given; after `timeout`
        seconds stop it with all it started. The result's `argv` is what a person would type here."""
        del folder
        if cores and (sys.platform != "linux" or shutil.which("taskset") is None):
            raise SetupError(
                "cpu_affinity needs Linux with taskset", "install util-linux, or leave cpu_affinity out"
            )
        words = (*pinned(cores, os.cpu_count(), "this machine"), *self.prefix, *argv)
        return process.run(words, timeout=timeout, leaves_nothing=True)

    def fetch(self, folder: str, to: Path) -> None:
        """Bring the files that a job left in its folder, to `to` plus a suffix; leave the rest."""

    def remove(self, folder: str) -> None:
        """Remove a job's folder. A lost machine is not an error here: running the job already reported it."""


def pinned(cores: Sequence[int], count: int | None, title: str) -> tuple[str, ...]:
    """Return what starts a command on these `cores` alone; the machine `title` has `count`, if known."""
    if beyond := [core for core in cores if core < 0 or (count is not None and core >= count)]:
        choices = f"choose from 0 to {count - 1}" if count else "name CPUs that it has"
        raise InputError(f"{title} has no CPU {beyond[0]}", choices)
    # Android's taskset accepts masks only; all others accept them too.
    return ("taskset", f"{sum(1 << core for core in set(cores)):x}") if cores else ()


@dataclass(frozen=True, slots=True)
class Route:
    """How jobs reach a machine: the command of the kit's runner there (empty if not prepared), the transport,
    and the folders here with its libraries."""

    runner: tuple[str, ...]
    transport: Transport
    code: tuple[Path, ...] = ()


_NOT_PREPARED = ("the target was not prepared", "call prepare() first")


@contextmanager
def _sent(
    transport: Transport, into: Path, stem: str, jobs: Mapping[str, Job]
) -> Iterator[tuple[str, list[Places]]]:
    """Make a folder on the machine for one process, and send what its `jobs` (by the stem of their files)
    need; the folder is removed afterwards."""
    for path in files.make_folder(into).iterdir():
        if is_left_by_job(path.name, stem):  # an earlier run's files must not pass for this one's
            path.unlink()
    folder = transport.make_folder(into)
    try:
        yield (
            folder,
            [
                Places(transport.put(job.model), tuple(map(transport.put, job.inputs)), f"{folder}/{name}")
                for name, job in jobs.items()
            ],
        )
    finally:
        transport.remove(folder)


def _bring(transport: Transport, done: Completed, folder: str, to: Path) -> None:
    """Keep the log of a process and, if it ended well, the files it left, as `to` plus a suffix."""
    files.write_text(Path(f"{to}{LOG}"), f"$ {shlex.join(done.argv)}\n{done.stdout}{done.stderr}")
    if done.ok:
        transport.fetch(folder, to)


def check_job(job: Job) -> None:
    """Refuse what no runner can use, or the named one cannot do: nothing requested is silently dropped."""
    closure(job.disable)
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
            "an executor_runner cannot count kernels, sample threads or keep raw outputs",
            'use runner_path "builtin"',
        )
