"""Builds the runner ahead of its first use: `python -m model_profiling.runner`."""

import sys

from model_profiling.errors import ProfilingError
from model_profiling.printable import printable
from model_profiling.progress import Lines, watching
from model_profiling.runner.build import build_runner
from model_profiling.runner.cache import take_remade
from model_profiling.signals import end_like_ctrl_c
from model_profiling.standard_streams import answered


@answered
def main() -> int:
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            build = build_runner()
    except ProfilingError as problem:
        print(printable(f"error: {problem}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    for note in take_remade():
        print(printable(f"warning: {note}"), file=sys.stderr)
    how = "found" if build.cached else f"built in {build.seconds:.1f} s with {build.compiler}"
    print(f"runner {build.build_id} for ExecuTorch {build.executorch_version}: {how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
