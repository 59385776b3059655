"""What programs share that get a part of the kit ready before its first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import printable
from model_profiling.core.progress import Lines, watching
from model_profiling.core.signals import end_like_ctrl_c
from model_profiling.runner.build import RunnerBuild
from model_profiling.runner.cache import take_remade


def make_ready(prepare: Callable[[], Sequence[str]]) -> int:
    """Call `prepare`, print the lines it returns and show its progress; the exit code."""
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            ready = prepare()
    except ProfilingError as problem:
        print(printable(f"error: {problem}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    for note in take_remade():
        print(printable(f"warning: {note}"), file=sys.stderr)
    for line in ready:
        print(printable(line))
    return 0


def describe(build: RunnerBuild) -> str:
    how = "found" if build.cached else f"built in {build.seconds:.1f} s with {build.compiler}"
    return f"runner {build.build_id} for ExecuTorch {build.executorch_version}: {how}"
