"""pip for setting up a clone: `python -m model_profiling.runner.pip install ...`.

Shows what is fetched and its size; pip's own output appears only if it fails.
"""

import sys

from model_profiling.core.fetching import pip
from model_profiling.core.stdio import checked_output
from model_profiling.runner.ahead import run_program, say

_LONGEST_S = 7200.0


def _install() -> int:
    done = pip(*sys.argv[1:], timeout=_LONGEST_S)
    if not done.ok:
        say(f"{done.stdout}{done.stderr}".rstrip())
    return done.returncode


@checked_output
def main() -> int:
    return run_program(_install)


if __name__ == "__main__":
    sys.exit(main())
