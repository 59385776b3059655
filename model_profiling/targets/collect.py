"""Turns what a job left behind into its outcome, or into the error that explains why there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.core.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.core.formatting import listing, plural
from model_profiling.core.process import Completed
from model_profiling.runner.result import RunnerResult, check_program, read_lockstep_result, read_result
from model_profiling.targets.job import (
    BOUNDARIES,
    ETDUMP,
    LOG,
    NO_DUMP,
    OUTPUTS,
    RESULT,
    SEEN,
    Job,
    LockstepJob,
    LockstepOutcome,
    Outcome,
    child_files,
    read_own_times,
)

# How a runner ended: the problem and its fix.

_SIGNALS = {
    "SIGILL": "a CPU feature is reported but not usable here; switch it off (disable) or use another target",
    "SIGSEGV": "the program file may be damaged; export it again",
    "SIGBUS": "the program file may be damaged or on a full disk; export it again",
    "SIGABRT": "the last log lines say why",
    "SIGKILL": "the system most likely ran out of memory; use a smaller model or free some memory",
}

_TIME_LIMIT = 124
_OUT_OF_MEMORY = 12
# The other exit codes of the kit's runner, as in runner/failure.h, each with its fix.
_EXIT_CODES: dict[int, tuple[type[ProfilingError], str]] = {
    2: (RunError, "correct extra_args, the arguments of the runner"),
    3: (FormatError, "export it again"),
    4: (RunError, "the log says which part failed; export it again if the file may be damaged"),
    5: (RunError, "the log says which part failed"),
    6: (RunError, "run without switching features off, or update the kit"),
    7: (InputError, "give the inputs that the method takes"),
    8: (InputError, "check the folder and the space on the disk"),
    9: (SetupError, "install ExecuTorch again"),
    10: (RunError, "this is a bug in the runner; report it with the log"),
    11: (RunError, "the last log lines say why"),
    13: (RunError, "measure them one by one"),
}


_NO_MEMORY = "bad_alloc|Malloc failed|MemoryAllocationFailed"
_CHILD = re.compile(r"(?m)^sme2prof-runner: child (\d{1,6}) \(.*?\): (.+)$")
_CRASHED = re.compile(r"crashed with (\w+)$")


def explain(job: Job | LockstepJob, done: Completed) -> ProfilingError:
    """Return the error for a process that failed; for a launch it names the job that caused it. A file that
    is no program explains every failure."""
    for path in {program_job.model for program_job in ((job,) if isinstance(job, Job) else job.jobs)}:
        check_program(path)
    tail, log = done.tail(), f"{done.stdout}\n{done.stderr}"
    crash = done.signal_name
    who, program, complaint = "the runner", None, None
    if isinstance(job, Job):
        slow, program = job.model.name, job
    else:
        slow = f"a launch of {len(job.jobs)} programs"
        child = _CHILD.search(done.stderr)
        if child and int(child[1]) < len(job.jobs):
            program, complaint = job.jobs[int(child[1])], child[2]
            slow = who = f"program {int(child[1]) + 1} of {len(job.jobs)} ({_described(program)})"
            crashed = _CRASHED.match(complaint)
            crash = crashed[1] if crashed else None
    if done.timed_out or done.returncode == _TIME_LIMIT:
        what = f"{slow} did not finish within {job.timeout_s:g} s and was stopped"
        return RunError(what, "ask for fewer runs or a longer time limit", tail)
    lacking = re.findall(r"Missing operator: \[\d+\] (\S+)", log)
    backend = re.search(r"Backend (\S+) is not registered", log)
    if program and (lacking or backend):
        missing, cure = missing_backend(backend[1]) if backend else missing_operators(lacking)
        return RunError(f"{program.model.name} needs {missing}", cure, tail)
    if crash:
        return RunError(f"{who} crashed with {crash}", _SIGNALS.get(crash, "see the log"), tail)
    if program and (done.returncode == _OUT_OF_MEMORY or re.search(_NO_MEMORY, log)):
        cure = "free some memory, raise the limit or use a smaller model"
        return RunError(f"{who} ran out of memory", cure, tail)
    own = re.search(r"(?m)^sme2prof-runner: (.+)$", done.stderr)
    if complaint is None and own is None:
        last = tail.splitlines()[-1] if tail else "it said nothing"
        return RunError(f"the runner ended with exit code {done.returncode}: {last}", "see the log", tail)
    problem = f"{who}: {complaint}" if complaint is not None else own[1] if own else ""
    kind, cure = _EXIT_CODES.get(done.returncode, (RunError, "see the log"))
    return RunError(problem, cure, tail) if kind is RunError else kind(problem, cure)


def _described(job: Job) -> str:
    threads = f", {plural(job.threads, 'thread')}"
    return f"{job.model.name}{threads}{f', without {listing(job.disable)}' if job.disable else ''}"


def missing_operators(names: Iterable[str]) -> tuple[str, str]:
    missing = sorted(set(names))
    way = "so that these operators are decomposed or delegated"
    if any(name.startswith("llama::") for name in missing):
        way = (
            "without custom operators (export_llm with model.use_sdpa_with_kv_cache=False, or no --optimize)"
        )
    listed = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    cure = f"export the model {way}, or name a runner that has them (`runner_path` in a config)"
    return f"{listed}, which the runner does not have", cure


def missing_backend(name: str) -> tuple[str, str]:
    cure = "export it for xnnpack or portable, or name a runner that has it (`runner_path` in a config)"
    return f"the backend {name}, which the runner does not have", cure


def collect(job: Job, done: Completed, files: Path, code: Sequence[Path] = ()) -> Outcome:
    """Return the outcome of `job`, whose files are `files` plus a suffix; `code` are the library folders."""
    if not done.ok:
        raise explain(job, done)
    if job.runner_path is None:
        result = beside(read_result(Path(f"{files}{RESULT}")), files)
    else:
        dump = Path(f"{files}{ETDUMP}") if job.etdump else None
        result = read_own_times(job, done.stdout + done.stderr, dump)
    if len(result.iterations_ns) != job.runs:
        made = len(result.iterations_ns)
        raise RunError(
            f"the runner reports {made} executions, {job.runs} were asked for", "see the log", done.tail()
        )
    outcome = _outcome(job, result, files, Path(f"{files}{LOG}"))
    if job.sample_hz:
        from model_profiling.runner.samples import read_samples  # needs numpy, which the doctor does without

        outcome = replace(outcome, samples=read_samples(Path(f"{files}{SEEN}"), code))
    return outcome


def collect_lockstep(job: LockstepJob, done: Completed, files: Path) -> LockstepOutcome:
    if not done.ok:
        raise explain(job, done)
    lockstep = read_lockstep_result(Path(f"{files}{RESULT}"))
    if len(lockstep.results) != len(job.jobs):
        raise RunError(
            f"the runner reports {len(lockstep.results)} programs, {len(job.jobs)} were asked for",
            "see the log",
        )
    log = Path(f"{files}{LOG}")
    outcomes = tuple(
        _outcome(child, beside(result, files), Path(child_files(str(files), number)), log)
        for number, (child, result) in enumerate(zip(job.jobs, lockstep.results, strict=True))
    )
    return LockstepOutcome(outcomes, lockstep.turns, lockstep.launch, lockstep.machine)


def _outcome(job: Job, result: RunnerResult, files: Path, log: Path) -> Outcome:
    etdump = Path(f"{files}{ETDUMP}") if job.etdump else None
    if etdump is not None and not (etdump.is_file() and etdump.stat().st_size):
        wrote = "an empty" if etdump.is_file() else "no"
        raise RunError(f"the runner wrote {wrote} ETDump", NO_DUMP)
    boundaries = Path(f"{files}{BOUNDARIES}") if etdump is not None else None
    return Outcome(
        result=result,
        log=log,
        etdump=etdump,
        boundaries=boundaries if boundaries is not None and boundaries.is_file() else None,
        etdump_warmup_runs=job.warmup if job.etdump and job.runner_path else 0,
    )


def beside(result: RunnerResult, files: Path) -> RunnerResult:
    """Correct the paths of outputs, which the runner names as on its machine, to those beside its result."""
    outputs = []
    for output in result.outputs:
        if output.file is not None and not output.file.name.startswith(files.name):
            raise RunError(
                f"the runner gave its output an unexpected name, {output.file.name}", "run it again"
            )
        outputs.append(replace(output, file=files.parent / output.file.name) if output.file else output)
    return replace(result, outputs=tuple(outputs))


# The files that a job may leave where it runs. Nothing else is brought back.

MOST_FILES = 1000
"""Of one job; programs have a few outputs, those with a cache of past tokens about a hundred."""
MOST_FILE_BYTES = 2 << 30
"""A dump is a FlatBuffer, which cannot be larger; neither can a tensor beside the program that made it."""
MOST_BYTES = 8 << 30
LEFT = (RESULT, SEEN, ETDUMP, BOUNDARIES, f"{OUTPUTS}[0-9]*.bin")
"""How their names end, as a shell finds them."""


def is_left_by_job(name: str, stem: str) -> bool:
    """Whether a job or launch with this `stem` may leave a file of this name."""
    endings = "|".join((*map(re.escape, LEFT[:-1]), rf"{OUTPUTS}[0-9]{{1,3}}\.bin"))
    return re.fullmatch(rf"{re.escape(stem)}(?:_child[0-9]{{1,6}})?(?:{endings})", name) is not None
