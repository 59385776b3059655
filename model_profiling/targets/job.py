"""What goes into a target and what comes out: jobs, their command lines for the kit's own runner and for
ExecuTorch's `executor_runner`, and outcomes. All paths in a command are paths on the machine that runs it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from model_profiling.core.errors import FormatError, InputError, RunError
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
    """What a job left behind. `kernels` maps each executed KleidiAI kernel to its calls in the measured
    executions; if nothing could be counted, `kernels_note` says why. The first `etdump_warmup_runs` runs in
    the dump are warm-up (none with the kit's own runner)."""

    result: RunnerResult
    log: Path
    etdump: Path | None = None
    boundaries: Path | None = None
    """When the operators in the dump began and ended; if None, `result` says why."""
    etdump_warmup_runs: int = 0
    outputs: tuple[Path, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    kernels_at_load: Mapping[str, int | None] = field(default_factory=dict)
    kernels_note: str | None = None
    kernel_sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """What the kernels were called with, as the runner reports it."""
    samples: Samples | None = None
    """Where the threads were seen."""
    timings_are_latency: bool = True


@dataclass(frozen=True, slots=True)
class LockstepJob:
    """One launch of programs that take turns, each in its own process.

    In each cycle every job has one turn of `turn_length` executions, in an order shuffled from `order_seed`.
    The launch ends after `cycles`, or starts no new cycle once the turns have taken `budget_s`; at least one
    of the two is given, and there is always one cycle. The `runs`, `timeout_s` and `cpu_affinity` of its jobs
    are ignored: those of the launch apply.
    """

    jobs: tuple[Job, ...]
    cycles: int | None = None
    turn_length: int = 4
    order_seed: int = 0
    budget_s: float | None = None
    timeout_s: float = 600.0
    cpu_affinity: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LockstepOutcome:
    """What a launch left behind: an outcome for each job, and the turns that were taken."""

    outcomes: tuple[Outcome, ...]
    turns: Turns
    launch: LaunchFacts
    machine: LaunchMachine
    log: Path

    @property
    def results(self) -> tuple[RunnerResult, ...]:
        return tuple(outcome.result for outcome in self.outcomes)


# What a user's own executor_runner can do: its flags and its log changed with ExecuTorch's releases. From 1.3
# on it prints the time of each execution. From 0.6 on it prints the sum, and each time is in its dump if it
# was built with the event tracer. Older ones run once and print no time. The kit finds out by trying: an
# unknown flag is refused before anything else happens.

_ITERATION = re.compile(r"Iteration \d+ of \d+: (\S+) ms")
_LOADED = re.compile(r"Model loaded in (\S+) ms")
_TOTAL = re.compile(r"executed successfully (\d+) time\(s\) in (\S+) ms")
_MS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?", re.ASCII)
_REFUSED = re.compile(r"unknown command line flag '(\w+)'")
_OURS = frozenset(("method_name", "print_output", "num_executions", "cpu_threads", "inputs", "etdump_path"))
NO_TIMES = "has no line 'Iteration N of M: T ms'"
_NEWER = (
    'use one of ExecuTorch 1.0 or newer, built with EXECUTORCH_ENABLE_EVENT_TRACER, or runner_path "builtin"'
)


def fit_to_runner(job: Job, lacks: Collection[str]) -> Job:
    """Adapt `job` to its own runner, which `lacks` these flags of today's executor_runner: add a dump if only
    that has the times; refuse what the runner cannot do."""
    needed = {"num_executions": True, "cpu_threads": True, "inputs": bool(job.inputs)}
    needed |= {"method_name": job.method != "forward", "etdump_path": job.etdump}
    if missing := [flag for flag, needs in needed.items() if needs and flag in lacks]:
        raise InputError(f"{job.runner_path} has no --{missing[0]}, which this experiment needs", _NEWER)
    # The line for each execution was added together with the flag that silences outputs.
    by_dump = "print_output" in lacks and "etdump_path" not in lacks
    return replace(job, etdump=True) if by_dump else job


def refused_flags(done: Completed) -> frozenset[str]:
    """Return the kit's flags that a user's runner refused, so that it is run again without them."""
    return frozenset() if done.ok else frozenset(_REFUSED.findall(done.stdout + done.stderr)) & _OURS


def read_own_times(job: Job, log: str, dump: Path | None) -> RunnerResult:
    """Read the times in an executor_runner's log, or else its dump; the first `warmup` are warm-up."""
    times = tuple(_measured(line[0], line[1]) for line in _ITERATION.finditer(log))
    total = _TOTAL.search(log)
    if not times and dump is not None and dump.is_file():
        times = _times_in(dump)
    elif not times and total and total[1] == "1":
        times = (_measured(total[0], total[2]),)
    if not times:
        only = "only has the total time of all executions"
        raise RunError(
            f"the runner's log {only if total else NO_TIMES}",
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
        kernels_unavailable="an executor_runner does not count kernels",
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
    job: Job, runner: Sequence[str], places: Places, lacks: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the command line of `job`; `runner` starts it, and a user's own runner `lacks` these flags."""
    if job.runner_path is not None:
        return (*runner, *_executor_runner_words(job, places, lacks), *job.extra_args)
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
    if job.cycles is not None:
        words += ["--cycles", str(job.cycles)]
    if job.budget_s is not None:
        words += ["--budget", f"{job.budget_s:g}"]
    words += ["--time-limit", f"{job.timeout_s:g}", "--result", f"{files}{RESULT}"]
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


def _executor_runner_words(job: Job, places: Places, lacks: Collection[str]) -> list[str]:
    # There is no warm-up flag: warm-up executions are requested as ordinary ones, and stay in the ETDump.
    words = [f"--model_path={places.model}"]
    words += [f"--method_name={job.method}"] if "method_name" not in lacks else []
    words += ["--print_output=none"] if "print_output" not in lacks else []
    words += [f"--num_executions={job.warmup + job.runs}", f"--cpu_threads={job.threads}"]
    if places.inputs:
        words.append(f"--inputs={','.join(places.inputs)}")
    if job.etdump:
        words.append(f"--etdump_path={places.files}{ETDUMP}")
    return words
