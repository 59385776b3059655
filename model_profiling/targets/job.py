"""What goes into a target and what comes out: jobs, their command lines for the kit's own runner and for
ExecuTorch's `executor_runner`, and outcomes. All paths in a command are paths on the machine that runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling.core.errors import FormatError, RunError
from model_profiling.core.formatting import printable
from model_profiling.core.process import Completed
from model_profiling.runner.features import cpuinfo_flags
from model_profiling.runner.result import LaunchFacts, LaunchMachine, RunnerResult, Turns

if TYPE_CHECKING:
    from model_profiling.runner.samples import Samples  # needs numpy, which the doctor does without


@dataclass(frozen=True, slots=True)
class Job:
    """One process to start: which program, how often, what to switch off, and what to keep.

    `runner_path` is a user's own executor_runner; None is the kit's runner. `disable` holds feature names of
    `runner.features`. `kernels` counts kernel calls, which slows them; `sample_hz` is how often to record
    where each thread is. A job with either measures no latency.
    """

    model: Path
    method: str = "forward"
    threads: int = 1
    warmup: int = 1
    runs: int = 1
    disable: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    sizes: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Of inputs of variable length, by number."""
    values: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """Of inputs that are not made up, by number."""
    state: tuple[tuple[int, int, int], ...] = ()
    """Buffer, offset and size of planned memory that is put back before each execution."""
    seed: int = 0
    fill: Literal["random", "ones"] = "random"
    etdump: bool = False
    kernels: bool = False
    cold: bool = False
    """Load the program from the disk, if the system allows that."""
    memory_rate: bool = False
    """Also measure how fast the machine's memory can be read."""
    sample_hz: int | None = None
    save_outputs: bool = False
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()
    libraries: tuple[Path, ...] = ()
    """With operators of their own, on the machine that runs it."""
    extra_args: tuple[str, ...] = ()
    runner_path: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left behind. The first `etdump_warmup_runs` runs in the dump are warm-up, none with
    the kit's own runner."""

    result: RunnerResult
    log: Path
    etdump: Path | None = None
    boundaries: Path | None = None
    """When the operators in the dump began and ended; if None, `result` says why."""
    etdump_warmup_runs: int = 0
    samples: Samples | None = None
    """Where the threads were seen."""


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """One launch of programs that take turns, each in its own process.

    In each of its `cycles` every job has one turn of `turn_length` executions, in an order shuffled from
    `order_seed`. The `runs`, `timeout_s` and `cpu_affinity` of its jobs do not count: those here do.
    """

    jobs: tuple[Job, ...]
    cycles: int
    turn_length: int = 4
    order_seed: int = 0
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LockstepOutcome:
    """What a launch left behind: an outcome for each job, and the turns that were taken."""

    outcomes: tuple[Outcome, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine

    @property
    def results(self) -> tuple[RunnerResult, ...]:
        return tuple(outcome.result for outcome in self.outcomes)


# What a user's own executor_runner prints: from ExecuTorch 1.3 on, the time of each execution. Earlier ones
# refuse some of today's flags, and have these times in their dump, if they were built with the event tracer.

_ITERATION = re.compile(r"Iteration \d+ of \d+: (\S+) ms")
_LOADED = re.compile(r"Model loaded in (\S+) ms")
_MS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)
_NEW_FLAG = re.compile(r"unknown command line flag '(?:print_output|method_name)'")


def is_before_1_3(done: Completed) -> bool:
    """Whether a user's runner refused a flag that it got with ExecuTorch 1.3."""
    return not done.ok and _NEW_FLAG.search(done.stdout + done.stderr) is not None


def read_own_times(job: Job, log: str, dump: Path | None) -> RunnerResult:
    """Read the times in an executor_runner's log, or else its dump; the first `warmup` are warm-up."""
    times = tuple(_measured(line[0], line[1]) for line in _ITERATION.finditer(log))
    if not times and dump is not None and dump.is_file():
        times = _times_in(dump)
    if not times:
        raise RunError(
            "the runner's log has no line 'Iteration N of M: T ms'",
            "use an executor_runner of ExecuTorch 1.3 or newer, one built with "
            'EXECUTORCH_ENABLE_EVENT_TRACER, or runner_path "builtin"',
            "\n".join(log.splitlines()[-12:]),
        )
    loaded = _LOADED.search(log)
    return RunnerResult(
        iterations_ns=times[job.warmup :],
        threads=job.threads,
        warmup=job.warmup,
        load_ns=_nanoseconds(loaded[1]) if loaded else None,
        first_ns=times[0],
        traced=job.etdump,
        boundaries_unavailable="an executor_runner does not keep them",
    )


def _nanoseconds(time: str) -> int | None:
    return round(float(time) * 1e6) if _MS.fullmatch(time) else None


def _measured(line: str, time: str) -> int:
    """Return the time of an execution; refuse 0, as such a clock cannot measure."""
    nanoseconds = _nanoseconds(time)
    if not nanoseconds:
        raise RunError(
            f"the runner's log says '{printable(line[:80])}', which is not a time",
            'use an executor_runner of ExecuTorch, or runner_path "builtin"',
        )
    return nanoseconds


def _times_in(dump: Path) -> tuple[int, ...]:
    from model_profiling.etdump import read_etdump  # needs numpy, which the doctor does without

    try:
        table = read_etdump(dump)
    except FormatError as problem:  # which names a file that is removed with the process's folder
        raise RunError("the runner wrote an ETDump that cannot be read", NO_DUMP) from problem
    executions = table.text(table.name) == "Method::execute"
    return tuple(int(ns) for ns in table.duration_ns[executions])


NO_DUMP = "see its log; build it with the event tracer, or name the kit's own runner"
LOG, ETDUMP, RESULT, OUTPUTS = ".log", ".etdump", "_runner.json", "_output"
BOUNDARIES, SEEN = f"{ETDUMP}.boundaries", "_seen.json"
"""Suffixes of a job's files, on the machine that runs it and here."""


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of a job's parts on the machine that runs it; `files` is completed by the suffixes above."""

    model: str
    inputs: tuple[str, ...]
    files: str


def build_command(
    job: Job, runner: Sequence[str], places: Places, *, before_1_3: bool = False
) -> tuple[str, ...]:
    """Return the command line of `job`; `runner` starts it."""
    if job.runner_path is not None:
        return (*runner, *_executor_runner_words(job, places, before_1_3), *job.extra_args)
    words = [*_program_words(job, places), "--executions", str(job.runs)]
    words += ["--result", f"{places.files}{RESULT}", "--time-limit", f"{job.timeout_s:g}"]
    if job.sample_hz:
        words += ["--sample", f"{places.files}{SEEN}", "--sample-hz", str(job.sample_hz)]
    flags = {"--cold": job.cold, "--memory-rate": job.memory_rate, "--count-kernels": job.kernels}
    words += [flag for flag, asked in flags.items() if asked]
    return (*runner, *words, *job.extra_args)


def build_lockstep_command(
    job: LockstepJob, runner: Sequence[str], children: Sequence[Places]
) -> tuple[str, ...]:
    """Return the command line of a launch; its own files lie beside those of `children`."""
    files = children[0].files.removesuffix(child_files("", 0))
    words = ["--lockstep", "--turn-length", str(job.turn_length), "--order-seed", str(job.order_seed)]
    words += ["--cycles", str(job.cycles), "--time-limit", f"{job.timeout_s:g}"]
    words += ["--result", f"{files}{RESULT}"]
    for child, places in zip(job.jobs, children, strict=True):
        words += ["--child", *_program_words(child, places), *child.extra_args]
    return (*runner, *words)


def child_files(files: str, number: int) -> str:
    return f"{files}_child{number}"


def _program_words(job: Job, places: Places) -> list[str]:
    words = ["--model", places.model, "--method", job.method]
    words += ["--threads", str(job.threads), "--warmup", str(job.warmup)]
    if places.inputs:
        words += [word for path in places.inputs for word in ("--input", path)]
    else:
        words += ["--fill", job.fill, "--seed", str(job.seed)]
    words += [word for number, sizes in job.sizes for word in ("--sizes", f"{number}={_joined('x', sizes)}")]
    words += [
        word for number, given in job.values for word in ("--values", f"{number}={_joined(',', given)}")
    ]
    words += [word for place in job.state for word in ("--state", _joined(":", place))]
    words += [word for path in job.libraries for word in ("--library", str(path))]
    if job.disable:
        words += ["--disable", ",".join(cpuinfo_flags(job.disable))]
    if job.etdump:
        words += ["--etdump", f"{places.files}{ETDUMP}", "--boundaries", f"{places.files}{BOUNDARIES}"]
    if job.save_outputs:
        words += ["--output-prefix", f"{places.files}{OUTPUTS}"]
    return words


def _joined(separator: str, numbers: Sequence[float]) -> str:
    return separator.join(f"{number:.17g}" for number in numbers)


def _executor_runner_words(job: Job, places: Places, before_1_3: bool) -> list[str]:
    # There is no warm-up flag: warm-up executions are requested as ordinary ones, and stay in the ETDump.
    words = [f"--model_path={places.model}"]
    words += [] if before_1_3 else ["--print_output=none"]
    if not before_1_3 or job.method != "forward":
        words.append(f"--method_name={job.method}")
    words += [f"--num_executions={job.warmup + job.runs}", f"--cpu_threads={job.threads}"]
    if places.inputs:
        words.append(f"--inputs={','.join(places.inputs)}")
    if job.etdump:
        words.append(f"--etdump_path={places.files}{ETDUMP}")
    return words
