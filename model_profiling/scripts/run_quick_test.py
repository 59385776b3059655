#!/usr/bin/env python3
"""Smoke test: export a small model, run it briefly on this machine or a phone, validate the results.

examples:
  python model_profiling/scripts/run_quick_test.py
  python model_profiling/scripts/run_quick_test.py --platform android
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.compat.quick_test import run_quick_test
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(run_quick_test(__doc__))
