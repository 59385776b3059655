"""Analyse a run directory again: CSV files beside each dump and analysis_summary.json.

example:
  python model_profiling/scripts/analyze_results.py --run-dir out_toy_cnn/runs/xnnpack_fp16/linux
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.script import run_script

if __name__ == "__main__":
    sys.exit(run_script("analyze", "--run-dir", __doc__))
