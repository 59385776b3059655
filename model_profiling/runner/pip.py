"""pip for the set-up of a clone: `python -m model_profiling.runner.pip install ...`.

Says what is fetched and how large it is, and of pip's own words nothing unless it fails.
"""

import sys

from model_profiling.core.fetching import pip
from model_profiling.core.formatting import printable
from model_profiling.core.progress import Lines, watching
from model_profiling.core.signals import end_like_ctrl_c
from model_profiling.core.stdio import answered

_LONGEST_S = 7200.0


@answered
def main() -> int:
    end_like_ctrl_c()
    try:
        with watching(Lines()):
            done = pip(*sys.argv[1:], timeout=_LONGEST_S)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130
    if not done.ok:
        sys.stderr.write(printable(f"{done.stdout}{done.stderr}"))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
