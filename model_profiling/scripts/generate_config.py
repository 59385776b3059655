#!/usr/bin/env python3
"""Writes a config: `python model_profiling/scripts/generate_config.py --model FILE.pte --output DIR_OR_FILE`.

Takes the options of `sme2prof config new`; on a terminal it asks for those that are missing.
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.cli.main import main
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main(["config", "new", *sys.argv[1:]]))
