#!/usr/bin/env python3
"""Run the experiments of a config on Linux and analyse them.

example:
  python model_profiling/scripts/linux_pipeline.py --config my_config.json
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_pipeline", __doc__, system="linux"))
