"""The command line of a job, for the kit's own runner and for ExecuTorch's `executor_runner`.

Every path in it is one of the machine the job runs on; nothing here looks at any machine's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.runner.features import cpuinfo_flags
from model_profiling.targets.protocol import Job, LockstepJob

LOG, ETDUMP, RESULT, OUTPUTS, GAUGE = ".log", ".etdump", "_runner.json", "_output", "_gauge.csv"
BOUNDARIES = f"{ETDUMP}.boundaries"
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


def build_lockstep_command(
    job: LockstepJob, runner: Sequence[str], files: str, children: Sequence[Places]
) -> tuple[str, ...]:
    """What to run for a launch: `children` are the places of its jobs, `files` is its own path."""
    words = ["--lockstep", "--turn-length", str(job.turn_length), "--order-seed", str(job.order_seed)]
    if job.cycles is not None:
        words += ["--cycles", str(job.cycles)]
    if job.budget_s is not None:
        words += ["--budget", f"{job.budget_s:g}"]
    words += ["--time-limit", f"{job.timeout_s:g}", "--result", f"{files}{RESULT}"]
    for child, places in zip(job.jobs, children, strict=True):
        words += ["--child", *_program_words(child, places), *child.extra_args]
    return (*runner, *words)


def child_files(files: str, number: int) -> str:
    """The path that the endings complete for job `number` of a launch with the path `files`."""
    return f"{files}_child{number}"


def _kit_words(job: Job, places: Places) -> list[str]:
    words = [*_program_words(job, places), "--executions", str(job.runs)]
    words += ["--result", f"{places.files}{RESULT}", "--time-limit", f"{job.timeout_s:g}"]
    return [*words, "--count-kernels"] if job.kernels else words


def _program_words(job: Job, places: Places) -> list[str]:
    """What is said of one program, alone or as one of several."""
    words = ["--model", places.model, "--method", job.method]
    words += ["--threads", str(job.threads), "--warmup", str(job.warmup)]
    if places.inputs:
        words += [word for path in places.inputs for word in ("--input", path)]
    else:
        words += ["--fill", job.fill, "--seed", str(job.seed)]
    if job.disable:
        words += ["--disable", ",".join(cpuinfo_flags(job.disable))]
    if job.etdump:
        words += ["--etdump", f"{places.files}{ETDUMP}", "--boundaries", f"{places.files}{BOUNDARIES}"]
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
