#!/usr/bin/env python3
"""Check that this machine can profile; the same as `sme2prof doctor`.

examples:
  python model_profiling/scripts/validate_setup.py
  python model_profiling/scripts/validate_setup.py --prerequisites
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("validate_setup.validate_setup", __doc__))
