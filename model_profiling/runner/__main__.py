"""Builds the runner before its first use: `python -m model_profiling.runner`. For setting up a clone,
`python -m model_profiling.runner pip install ...` shows what is fetched, and pip's own output if it fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import printable
from model_profiling.core.stdio import Lines, checked_output, end_like_ctrl_c, watching
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.fetching import pip

_LONGEST_S = 7200.0


def run_program(work: Callable[[], int]) -> int:
    """Call `work` and show its progress; return the exit code."""
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            return work()
    except ProfilingError as problem:
        say(f"error: {problem}")
        return 2
    except KeyboardInterrupt:
        say("error: interrupted")
        return 130


def make_ready(prepare: Callable[[], Sequence[str]]) -> int:
    """Call `prepare`, print the lines it returns and show its progress; return the exit code."""

    def work() -> int:
        for line in prepare():
            tell(line)
        return 0

    return run_program(work)


def tell(text: str) -> None:
    print(printable(text), flush=True)


def say(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


def describe(build: RunnerBuild) -> str:
    how = "found" if build.cached else f"built in {build.seconds:.1f} s with {build.compiler}"
    return f"runner {build.build_id} for ExecuTorch {build.executorch_version}: {how}"


def _pip() -> int:
    done = pip(*sys.argv[2:], timeout=_LONGEST_S)
    if not done.ok:
        say(f"{done.stdout}{done.stderr}".rstrip())
    return done.returncode


@checked_output
def main() -> int:
    if sys.argv[1:2] == ["pip"]:
        return run_program(_pip)
    return make_ready(lambda: [describe(build_runner())])


if __name__ == "__main__":
    sys.exit(main())
