"""Builds the runner before its first use: `python -m model_profiling.runner`."""

import sys

from model_profiling.core.stdio import checked_output
from model_profiling.runner.ahead import describe, make_ready
from model_profiling.runner.build import build_runner


@checked_output
def main() -> int:
    return make_ready(lambda: [describe(build_runner())])


if __name__ == "__main__":
    sys.exit(main())
