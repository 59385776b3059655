#!/usr/bin/env python3
"""Check that this machine can profile; the same as `sme2prof doctor`.

examples:
  python model_profiling/scripts/validate_setup.py --verbose
  python model_profiling/scripts/validate_setup.py --prerequisites
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.compat.validate_setup import validate_setup
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(validate_setup(__doc__))
