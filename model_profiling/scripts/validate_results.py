"""Check that a run directory holds what it promises and that it makes sense.

example:
  python model_profiling/scripts/validate_results.py --results out_toy_cnn/runs/xnnpack_fp16/linux
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.script import run_script

if __name__ == "__main__":
    sys.exit(run_script("validate", "--results", __doc__))
