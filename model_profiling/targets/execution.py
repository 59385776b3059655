"""Runs a job on the machine behind a transport: checked, sent, run, its log kept, and collected."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError, RunError, SetupError
from model_profiling.process import Completed
from model_profiling.runner.features import closure
from model_profiling.runner.program_file import check_program
from model_profiling.targets.collect import collect, collect_lockstep
from model_profiling.targets.command import (
    BOUNDARIES,
    ETDUMP,
    GAUGE,
    LOG,
    OUTPUTS,
    RESULT,
    SEEN,
    Places,
    build_command,
    build_lockstep_command,
    child_files,
)
from model_profiling.targets.device import energy
from model_profiling.targets.executor_runner import Abilities, known_abilities, learn
from model_profiling.targets.left_files import left_files, left_files_of_launch
from model_profiling.targets.lockstep import unfit_for_turns
from model_profiling.targets.protocol import Job, LockstepJob, LockstepOutcome, Outcome
from model_profiling.targets.transport import Transport

# The kit's runner ends itself at the limit; it is killed only when it could not.
_GRACE_S = 5.0


def execute(
    job: Job,
    into: Path,
    stem: str,
    *,
    runner: tuple[str, ...],
    transport: Transport,
    timings_are_latency: bool = True,
    code: Sequence[Path] = (),
) -> Outcome:
    """Run `job` and collect what it left in `into`. `runner` starts the kit's runner where the job runs, and
    is empty when nothing was prepared. `code` are the folders here that hold the libraries it runs with."""
    check_job(job)
    own, wanted = job.runner_path, job
    if own is None and not runner:
        raise RunError("the target was not prepared", "call prepare() first")
    _clear(files.make_folder(into), stem)
    folder = transport.make_folder(into)
    try:
        if own is not None:
            runner = transport.put_runner(own)
        places = Places(
            runner=runner,
            model=transport.put(job.model),
            inputs=tuple(transport.put(path) for path in job.inputs),
            files=f"{folder}/{stem}",
        )
        limit = job.timeout_s + (_GRACE_S if own is None else 0.0)
        while True:
            able = known_abilities(own) if own else Abilities()
            job = able.fitted(wanted) if own else wanted
            command = build_command(job, places, able)
            if job.gauge is not None:
                command = energy.metered(command, job.gauge, f"{folder}/{stem}{energy.ENDING}")
            done = transport.run(command, folder=folder, timeout=limit, cores=job.cpu_affinity)
            _keep_log(into, stem, done)
            if own is None or not learn(own, done):
                break
        if done.ok:
            transport.fetch(folder, left_files(job, stem), into)
    finally:
        transport.remove(folder)
    outcome = collect(job, done, into / stem, timings_are_latency=timings_are_latency, code=code)
    return outcome if job.etdump == wanted.etdump else _without_dump(outcome)


def _without_dump(outcome: Outcome) -> Outcome:
    """An outcome whose dump was only made for the times in it."""
    if outcome.etdump is not None:
        outcome.etdump.unlink()
    return replace(outcome, etdump=None, boundaries=None, etdump_warmup_runs=0)


def execute_lockstep(
    job: LockstepJob,
    into: Path,
    stem: str,
    *,
    runner: tuple[str, ...],
    transport: Transport,
    timings_are_latency: bool = True,
) -> LockstepOutcome:
    """Run a launch and collect what it left in `into`, as `execute` does for one job."""
    check_launch(job)
    if not runner:
        raise RunError("the target was not prepared", "call prepare() first")
    files.make_folder(into)
    for number in range(len(job.jobs)):
        _clear(into, child_files(stem, number))
    _clear(into, stem)
    folder = transport.make_folder(into)
    try:
        own = f"{folder}/{stem}"
        children = [
            Places(
                runner=(),
                model=transport.put(child.model),
                inputs=tuple(transport.put(path) for path in child.inputs),
                files=child_files(own, number),
            )
            for number, child in enumerate(job.jobs)
        ]
        command = build_lockstep_command(job, runner, own, children)
        limit = job.timeout_s + _GRACE_S
        done = transport.run(command, folder=folder, timeout=limit, cores=job.cpu_affinity)
        _keep_log(into, stem, done)
        if done.ok:
            transport.fetch(folder, left_files_of_launch(job, stem), into)
    finally:
        transport.remove(folder)
    return collect_lockstep(job, done, into / stem, timings_are_latency=timings_are_latency)


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


def _keep_log(into: Path, stem: str, done: Completed) -> None:
    files.write_text(into / f"{stem}{LOG}", f"$ {shlex.join(done.argv)}\n{done.stdout}{done.stderr}")


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
