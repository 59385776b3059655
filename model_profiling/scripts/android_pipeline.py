"""Run the experiments of a config on an Android phone and analyse them.

example:
  python model_profiling/scripts/android_pipeline.py --config my_config.json
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.script import run_script

if __name__ == "__main__":
    sys.exit(run_script("run", "--config", __doc__, defaults=("--target", "android")))
