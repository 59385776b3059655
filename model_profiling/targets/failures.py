"""Turns the way a runner ended into one sentence: what went wrong and what to do."""

from __future__ import annotations

import re

from model_profiling.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.process import Completed
from model_profiling.targets.protocol import Job

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
}


def explain(job: Job, done: Completed) -> ProfilingError:
    """The error for a process that did not end well."""
    tail = done.tail()
    if done.timed_out or done.returncode == _TIME_LIMIT:
        return RunError(
            f"{job.model.name} did not finish within {job.timeout_s:g} s and was stopped",
            "ask for fewer runs or a longer time limit",
            tail,
        )
    if name := done.signal_name:
        return RunError(f"the runner crashed with {name}", _SIGNALS.get(name, "see the log"), tail)
    log = f"{done.stdout}\n{done.stderr}"
    if done.returncode == _OUT_OF_MEMORY or re.search(r"bad_alloc|Malloc failed|MemoryAllocationFailed", log):
        cure = "free some memory, raise the limit or use a smaller model"
        return RunError("the runner ran out of memory", cure, tail)
    return _missing_part(job, log, tail) or _said(done, tail)


def _missing_part(job: Job, log: str, tail: str) -> RunError | None:
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
    kind, cure = _EXIT_CODES.get(done.returncode, (RunError, "see the log"))
    return RunError(said.group(1), cure, tail) if kind is RunError else kind(said.group(1), cure)
