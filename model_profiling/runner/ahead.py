"""Shared frame of the programs that prepare a part of the kit before its first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import printable
from model_profiling.core.progress import Lines, watching
from model_profiling.core.signals import end_like_ctrl_c
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.cache import take_repair_notes


def run_program(work: Callable[[], int], interrupted: str = "error: interrupted") -> int:
    """Call `work` and show its progress; return the exit code."""
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            return work()
    except ProfilingError as problem:
        say(f"error: {problem}")
        return 2
    except KeyboardInterrupt:
        say(interrupted)
        return 130


def make_ready(prepare: Callable[[], Sequence[str]]) -> int:
    """Call `prepare`, print the lines it returns and show its progress; return the exit code."""

    def work() -> int:
        ready = prepare()
        for note in take_repair_notes():
            say(f"warning: {note}")
        for line in ready:
            print(printable(line))
        return 0

    return run_program(work)


def say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def describe(build: RunnerBuild) -> str:
    how = "found" if build.cached else f"built in {build.seconds:.1f} s with {build.compiler}"
    return f"runner {build.build_id} for ExecuTorch {build.executorch_version}: {how}"
