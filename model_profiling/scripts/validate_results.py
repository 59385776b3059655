#!/usr/bin/env python3
"""Check that a run directory is complete and consistent.

example:
  python model_profiling/scripts/validate_results.py --results out_toy_cnn/runs/xnnpack_fp16/linux
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.compat.scripts import run_script
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(run_script("validate", "--results", __doc__))
