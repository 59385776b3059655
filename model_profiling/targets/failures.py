"""Turns the way a runner ended into one sentence: what went wrong and what to do."""

from __future__ import annotations

import re

from model_profiling.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.process import Completed
from model_profiling.targets.protocol import Job, LockstepJob
from model_profiling.wording import listing, plural

_SIGNALS = {
    "SIGILL": "a CPU feature is reported but not usable here; switch it off (disable) or use another target",
    "SIGSEGV": "the program file may be damaged; export it again",
    "SIGBUS": "the program file may be damaged or on a full disk; export it again",
    "SIGABRT": "the last log lines say why",
    "SIGKILL": "the system most likely ran out of memory; use a smaller model or free some memory",
}

_TIME_LIMIT = 124
_OUT_OF_MEMORY = 12
# The other exit codes of the kit's runner (runner/failure.h holds the same table), each with its cure.
_EXIT_CODES: dict[int, tuple[type[ProfilingError], str]] = {
    2: (RunError, "correct extra_args, the words given to the runner"),
    3: (FormatError, "export it again"),
    4: (RunError, "the log says which part failed; export it again if the file may be damaged"),
    5: (RunError, "the log says which part failed"),
    6: (RunError, "run without switching features off, or update the kit"),
    7: (InputError, "give what the method asks for"),
    8: (InputError, "check the folder and the space on the disk"),
    9: (SetupError, "install ExecuTorch again"),
    10: (RunError, "this is a fault of the runner itself; report it with the log"),
    11: (RunError, "the last log lines say why"),
    13: (RunError, "measure them in rounds of their own"),
}


_CHILD = re.compile(r"(?m)^sme2prof-runner: child (\d{1,6}) \(.*?\): (.+)$")
_CRASHED = re.compile(r"crashed with (\w+)$")


def explain(job: Job, done: Completed) -> ProfilingError:
    """The error for a process that did not end well."""
    tail = done.tail()
    if done.timed_out or done.returncode == _TIME_LIMIT:
        return _too_slow(job.model.name, job.timeout_s, tail)
    if name := done.signal_name:
        return _crashed("the runner", name, tail)
    return _out_of_memory(done, "the runner", tail) or _missing_part(job, done, tail) or _said(done, tail)


def explain_lockstep(job: LockstepJob, done: Completed) -> ProfilingError:
    """The error for a launch that did not end well; it names the job that was the cause."""
    tail = done.tail()
    found = _CHILD.search(done.stderr)
    number = int(found.group(1)) if found else -1
    if found is None or number >= len(job.jobs):
        if done.timed_out or done.returncode == _TIME_LIMIT:
            return _too_slow(f"a launch of {len(job.jobs)} programs", job.timeout_s, tail)
        if name := done.signal_name:
            return _crashed("the runner", name, tail)
        return _said(done, tail)
    child, said = job.jobs[number], found.group(2)
    who = f"program {number + 1} of {len(job.jobs)} ({_described(child)})"
    if done.returncode == _TIME_LIMIT:
        return _too_slow(who, job.timeout_s, tail)
    if crash := _CRASHED.match(said):
        return _crashed(who, crash.group(1), tail)
    known = _out_of_memory(done, who, tail) or _missing_part(child, done, tail)
    return known or _with_cure(f"{who}: {said}", done.returncode, tail)


def _described(job: Job) -> str:
    """A job as one would tell it from the others of its launch."""
    threads = f", {plural(job.threads, 'thread')}"
    return f"{job.model.name}{threads}{f', without {listing(job.disable)}' if job.disable else ''}"


def _too_slow(what: str, limit_s: float, tail: str) -> RunError:
    return RunError(
        f"{what} did not finish within {limit_s:g} s and was stopped",
        "ask for fewer runs or a longer time limit",
        tail,
    )


def _crashed(what: str, signal_name: str, tail: str) -> RunError:
    return RunError(f"{what} crashed with {signal_name}", _SIGNALS.get(signal_name, "see the log"), tail)


def _out_of_memory(done: Completed, what: str, tail: str) -> RunError | None:
    log = f"{done.stdout}\n{done.stderr}"
    failed = re.search(r"bad_alloc|Malloc failed|MemoryAllocationFailed", log)
    if done.returncode != _OUT_OF_MEMORY and not failed:
        return None
    return RunError(
        f"{what} ran out of memory", "free some memory, raise the limit or use a smaller model", tail
    )


def _missing_part(job: Job, done: Completed, tail: str) -> RunError | None:
    log = f"{done.stdout}\n{done.stderr}"
    operators = sorted(set(re.findall(r"Missing operator: \[\d+\] (\S+)", log)))
    if operators:
        shown = ", ".join(operators[:3]) + (f" and {len(operators) - 3} more" if len(operators) > 3 else "")
        return RunError(
            f"{job.model.name} needs operators the runner does not have: {shown}",
            "export it so that these are decomposed or delegated, or name a runner that has them",
            tail,
        )
    if backend := re.search(r"Backend (\S+) is not registered", log):
        return RunError(
            f"{job.model.name} needs the backend {backend.group(1)}, which the runner does not have",
            "export it for xnnpack or portable, or name a runner that has it",
            tail,
        )
    return None


def _said(done: Completed, tail: str) -> ProfilingError:
    said = re.search(r"(?m)^sme2prof-runner: (.+)$", done.stderr)
    if said is None:
        last = tail.splitlines()[-1] if tail else "it said nothing"
        return RunError(f"the runner gave up with exit code {done.returncode}: {last}", "see the log", tail)
    return _with_cure(said.group(1), done.returncode, tail)


def _with_cure(problem: str, code: int, tail: str) -> ProfilingError:
    kind, cure = _EXIT_CODES.get(code, (RunError, "see the log"))
    return RunError(problem, cure, tail) if kind is RunError else kind(problem, cure)
