#!/usr/bin/env python3
"""Ran one experiment with your own runner. A config does that now; this says what to type.

example:
  python model_profiling/scripts/perf_runner.py --model m.pte --quiet-runner executor_runner --timing-runs 20
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.cli.script import main
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main(__doc__))
