#!/usr/bin/env python3
"""Smoke test: export a small model, run it briefly on this machine or a phone, validate the results.

examples:
  python model_profiling/scripts/run_quick_test.py
  python model_profiling/scripts/run_quick_test.py --platform android
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_quick_test", __doc__))
