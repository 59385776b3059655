#!/usr/bin/env python3
"""Check a config, its model and runners, the output folder and, after a run, the results.

example:
  python model_profiling/scripts/validate_pipeline.py --config my_run.json
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.validate_pipeline", __doc__))
