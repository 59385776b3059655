#!/usr/bin/env python3
"""Write the report of a run.

example:
  python model_profiling/scripts/generate_report.py --run-dir out_toy_cnn/runs/xnnpack_fp16/linux
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_script", "report", "--run-dir", __doc__))
