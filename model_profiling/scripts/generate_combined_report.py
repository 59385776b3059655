"""Write one page about several runs, side by side: number formats, platforms, before and after.

example:
  python model_profiling/scripts/generate_combined_report.py --out both.md \\
    --run-dirs out_toy_cnn/runs/xnnpack_fp16/linux out_toy_cnn/runs/xnnpack_int8/linux
  python model_profiling/scripts/generate_combined_report.py --run-dirs out_toy_cnn/runs
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.script import run_script

if __name__ == "__main__":
    sys.exit(
        run_script(
            "report", "--run-dirs|--run-dir", __doc__, several=True, defaults=("--out", "combined_report.md")
        )
    )
