#!/usr/bin/env python3
"""Check that a run directory is complete and consistent.

example:
  python model_profiling/scripts/validate_results.py --results out_toy_cnn/runs/xnnpack_fp16/linux
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_script", "validate", "--results", __doc__))
