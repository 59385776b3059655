#!/usr/bin/env python3
"""Write one page about several runs, side by side: number formats, platforms, before and after.

example:
  python model_profiling/scripts/generate_combined_report.py --out both.md \\
    --run-dirs out_toy_cnn/runs/xnnpack_fp16/linux out_toy_cnn/runs/xnnpack_int8/linux
  python model_profiling/scripts/generate_combined_report.py --run-dirs out_toy_cnn/runs
  python model_profiling/scripts/generate_combined_report.py \\
    --mac-dir out_toy_cnn/runs/mac --android-dir out_toy_cnn/runs/android
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_combined_report", __doc__))
