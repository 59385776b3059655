"""The command line of a job, for the kit's own runner and for ExecuTorch's `executor_runner`.

Every path in it is one of the machine the job runs on; nothing here looks at any machine's files.
"""

from __future__ import annotations

from dataclasses import dataclass

from model_profiling.runner.features import cpuinfo_flags
from model_profiling.targets.protocol import Job

LOG, ETDUMP, RESULT, OUTPUTS = ".log", ".etdump", "_runner.json", "_output"
"""A job's files are one path with these endings, where it runs as well as where they end up."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a job's parts are on the machine it runs on. `runner` is several words where a loader starts it;
    `files` is the path that the endings above complete."""

    runner: tuple[str, ...]
    model: str
    inputs: tuple[str, ...]
    files: str


def build_command(job: Job, places: Places) -> tuple[str, ...]:
    """What to run for `job`, word by word."""
    words = _kit_words(job, places) if job.runner_path is None else _executor_runner_words(job, places)
    return (*places.runner, *words, *job.extra_args)


def _kit_words(job: Job, places: Places) -> list[str]:
    words = ["--model", places.model, "--method", job.method, "--result", f"{places.files}{RESULT}"]
    words += ["--threads", str(job.threads), "--warmup", str(job.warmup), "--executions", str(job.runs)]
    words += ["--time-limit", f"{job.timeout_s:g}"]
    if places.inputs:
        words += [word for path in places.inputs for word in ("--input", path)]
    else:
        words += ["--fill", job.fill, "--seed", str(job.seed)]
    if job.disable:
        words += ["--disable", ",".join(cpuinfo_flags(job.disable))]
    if job.etdump:
        words += ["--etdump", f"{places.files}{ETDUMP}"]
    if job.kernels:
        words += ["--count-kernels"]
    if job.save_outputs:
        words += ["--output-prefix", f"{places.files}{OUTPUTS}"]
    return words


def _executor_runner_words(job: Job, places: Places) -> list[str]:
    # It has no warm-up flag: warm-up executions are asked for as ordinary ones, and stay in its ETDump.
    words = [f"--model_path={places.model}", f"--method_name={job.method}", "--print_output=none"]
    words += [f"--num_executions={job.warmup + job.runs}", f"--cpu_threads={job.threads}"]
    if places.inputs:
        words.append(f"--inputs={','.join(places.inputs)}")
    if job.etdump:
        words.append(f"--etdump_path={places.files}{ETDUMP}")
    return words
