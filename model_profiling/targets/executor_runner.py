"""Drives any `executor_runner` built from ExecuTorch's sources through its own flags, and reads its log.

It has no warm-up flag: warm-up executions are asked for as ordinary ones and left out of the times. They
stay in its ETDump, as its first blocks.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from model_profiling.errors import InputError, RunError, SetupError
from model_profiling.runner.result import RunnerResult
from model_profiling.targets.protocol import Job

_ITERATION = re.compile(r"Iteration (\d+) of (\d+): ([0-9.]+) ms")
_LOADED = re.compile(r"Model loaded in ([0-9.]+) ms")


def command(job: Job, etdump: Path | None) -> tuple[str, ...]:
    """Its command line for `job`; what it cannot do is refused, never left out."""
    runner = job.runner_path
    if runner is None:
        raise InputError("no runner is named", "set runner_path")
    if not runner.is_file():
        raise SetupError(f"there is no runner {runner}", "build it or correct runner_path")
    if not os.access(runner, os.X_OK):
        raise SetupError(f"{runner} is not executable", "correct runner_path or its permissions")
    if job.disable:
        raise InputError(
            f"an executor_runner cannot switch {', '.join(job.disable)} off",
            'use runner_path "builtin", or a runner built without it',
        )
    if job.kernels or job.save_outputs:
        raise InputError(
            "an executor_runner neither counts kernels nor keeps raw outputs", 'use runner_path "builtin"'
        )
    words = [
        str(runner),
        f"--model_path={job.model}",
        f"--method_name={job.method}",
        f"--num_executions={job.warmup + job.runs}",
        f"--cpu_threads={job.threads}",
        "--print_output=none",
    ]
    if job.inputs:
        words.append(f"--inputs={','.join(map(str, job.inputs))}")
    if etdump is not None:
        words.append(f"--etdump_path={etdump}")
    return (*words, *job.extra_args)


def parse_log(job: Job, log: str) -> RunnerResult:
    """The times in its log; the first `warmup` of them are warm-up."""
    times = [round(float(ms) * 1e6) for _, _, ms in _ITERATION.findall(log)]
    if not times:
        raise RunError(
            "the runner's log has no line 'Iteration N of M: T ms'",
            'use an executor_runner of ExecuTorch 1.5 or newer, or runner_path "builtin"',
            "\n".join(log.splitlines()[-12:]),
        )
    loaded = _LOADED.search(log)
    return RunnerResult(
        iterations_ns=tuple(times[job.warmup :]),
        threads=job.threads,
        warmup=job.warmup,
        load_ns=round(float(loaded.group(1)) * 1e6) if loaded else None,
        first_ns=times[0],
        traced=job.etdump,
        kernels_unavailable="an executor_runner does not count kernels",
    )
