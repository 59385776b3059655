"""The command line of a job, for the kit's own runner and for ExecuTorch's `executor_runner`.

Every path in it is one of the machine the job runs on; nothing here looks at any machine's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from model_profiling.runner.features import cpuinfo_flags
from model_profiling.targets.executor_runner import Abilities
from model_profiling.targets.protocol import Job, LockstepJob

LOG, ETDUMP, RESULT, OUTPUTS, GAUGE = ".log", ".etdump", "_runner.json", "_output", "_gauge.csv"
BOUNDARIES, SEEN = f"{ETDUMP}.boundaries", "_seen.json"
"""A job's files are one path with these endings, where it runs as well as where they end up."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where a job's parts are on the machine it runs on. `runner` is several words where a loader starts it;
    `files` is the path that the endings above complete."""

    runner: tuple[str, ...]
    model: str
    inputs: tuple[str, ...]
    files: str


def build_command(job: Job, places: Places, able: Abilities | None = None) -> tuple[str, ...]:
    """What to run for `job`, word by word; `able` is what a runner of the user's own knows."""
    own = job.runner_path is not None
    words = _executor_runner_words(job, places, able or Abilities()) if own else _kit_words(job, places)
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
    if job.sample_hz:
        words += ["--sample", f"{places.files}{SEEN}", "--sample-hz", str(job.sample_hz)]
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


def _executor_runner_words(job: Job, places: Places, able: Abilities) -> list[str]:
    # It has no warm-up flag: warm-up executions are asked for as ordinary ones, and stay in its ETDump.
    words = [f"--model_path={places.model}"]
    words += [f"--method_name={job.method}"] if able.has("method_name") else []
    words += ["--print_output=none"] if able.has("print_output") else []
    words += [f"--num_executions={job.warmup + job.runs}", f"--cpu_threads={job.threads}"]
    if places.inputs:
        words.append(f"--inputs={','.join(places.inputs)}")
    if job.etdump:
        words.append(f"--etdump_path={places.files}{ETDUMP}")
    return words
