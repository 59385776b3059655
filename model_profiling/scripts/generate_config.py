#!/usr/bin/env python3
"""Write a config that compares SME2 on and off; on a terminal it asks for the model and the rest.

example:
  python model_profiling/scripts/generate_config.py --model my_model.pte --output my_run.json
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.generate_config", __doc__))
