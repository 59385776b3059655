"""Runs a job as a local process: builds the command for the kit's runner or for ExecuTorch's, keeps the log,
and reads back what it left. `host` and `emulated` differ only in what stands in front of the command.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling import files, process
from model_profiling.errors import InputError, RunError, SetupError
from model_profiling.runner.features import closure, cpuinfo_flags
from model_profiling.runner.program_file import check_program
from model_profiling.runner.result import RunnerResult, read_result
from model_profiling.targets import executor_runner
from model_profiling.targets.failures import explain
from model_profiling.targets.protocol import Job, Outcome

# The runner ends itself at the limit; the group is killed only when it could not.
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What stands in front of the runner, and whether its times mean anything."""

    runner: Path | None
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    timings_are_latency: bool = True


def execute(job: Job, launch: Launch, into: Path, stem: str) -> Outcome:
    """Run `job` and collect what it left in `into`."""
    check_program(job.model)
    check_counts(job)
    files.make_folder(into)
    paths = _Paths(into, stem)
    paths.clear()
    if job.runner_path is None:
        if launch.runner is None:
            raise RunError("the target was not prepared", "call prepare() first")
        command = builtin_command(job, launch.runner, paths)
        limit = job.timeout_s + _GRACE_S
    else:
        command = executor_runner.command(job, paths.etdump if job.etdump else None)
        limit = job.timeout_s
    argv = (*_pinned(job.cpu_affinity), *launch.prefix, *command)
    done = process.run(argv, timeout=limit, env=launch.env)
    files.write_text(paths.log, f"$ {shlex.join(argv)}\n{done.stdout}{done.stderr}")
    if not done.ok:
        raise explain(job, done)
    result = (
        read_result(paths.result)
        if job.runner_path is None
        else executor_runner.parse_log(job, done.stdout + done.stderr)
    )
    return _collect(job, launch, paths, result)


def builtin_command(job: Job, runner: Path, paths: _Paths) -> tuple[str, ...]:
    """The command line of the kit's own runner for `job`."""
    words = [str(runner), "--model", str(job.model), "--method", job.method, "--result", str(paths.result)]
    words += ["--threads", str(job.threads), "--warmup", str(job.warmup), "--executions", str(job.runs)]
    words += ["--time-limit", f"{job.timeout_s:g}"]
    if job.inputs:
        words += [word for path in job.inputs for word in ("--input", str(path))]
    else:
        words += ["--fill", job.fill, "--seed", str(job.seed)]
    if job.disable:
        words += ["--disable", ",".join(cpuinfo_flags(job.disable))]
    if job.etdump:
        words += ["--etdump", str(paths.etdump)]
    if job.kernels:
        words += ["--count-kernels"]
    if job.save_outputs:
        words += ["--output-prefix", str(paths.outputs)]
    return (*words, *job.extra_args)


def check_counts(job: Job) -> None:
    """Refuse numbers and names that no runner could use."""
    closure(job.disable)
    if job.runs < 1 or job.warmup < 0 or job.threads < 1:
        raise InputError(
            f"runs={job.runs}, warmup={job.warmup}, threads={job.threads} cannot be run",
            "runs and threads start at 1, warm-up at 0",
        )
    for path in job.inputs:
        if not path.is_file():
            raise InputError(f"there is no input file {path}", "give one raw file for each tensor input")


class _Paths:
    """The files of one job."""

    def __init__(self, into: Path, stem: str) -> None:
        self.log = into / f"{stem}.log"
        self.etdump = into / f"{stem}.etdump"
        self.result = into / f"{stem}_runner.json"
        self.outputs = into / f"{stem}_output"

    def clear(self) -> None:
        """Nothing an earlier run left may pass for the work of this one."""
        kept = self.outputs.parent.glob(f"{glob.escape(self.outputs.name)}[0-9]*.bin")
        for path in (self.log, self.etdump, self.result, *kept):
            path.unlink(missing_ok=True)


def _pinned(cores: Sequence[int]) -> tuple[str, ...]:
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


def _collect(job: Job, launch: Launch, paths: _Paths, result: RunnerResult) -> Outcome:
    if len(result.iterations_ns) != job.runs:
        raise RunError(
            f"the runner reports {len(result.iterations_ns)} executions, {job.runs} were asked for",
            "see the log",
            paths.log.read_text(encoding="utf-8", errors="replace")[-2000:],
        )
    if job.etdump and not paths.etdump.is_file():
        raise RunError(
            "the runner wrote no ETDump", "build it with the event tracer, or name the kit's own runner"
        )
    outcome = Outcome(
        result=result,
        log=paths.log,
        etdump=paths.etdump if job.etdump else None,
        etdump_warmup_runs=job.warmup if job.etdump and job.runner_path else 0,
        outputs=tuple(output.file for output in result.outputs if output.file is not None),
        timings_are_latency=launch.timings_are_latency and not job.kernels,
    )
    if not job.kernels:
        return outcome
    return replace(
        outcome,
        kernels=dict(result.kernels or {}),
        kernels_at_load=dict(result.kernels_at_load or {}),
        kernels_note=result.kernels_unavailable,
    )
