#!/usr/bin/env python3
"""Analyse a run directory again: CSV files beside each dump and analysis_summary.json.

example:
  python model_profiling/scripts/analyze_results.py --run-dir out_toy_cnn/runs/xnnpack_fp16/linux
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_script", "analyze", "--run-dir", __doc__))
