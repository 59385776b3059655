#!/usr/bin/env python3
"""Put the kit's CMake presets into a checkout of ExecuTorch; `build_runners.sh` does this too.

example:
  python model_profiling/scripts/merge_cmake_presets.py --executorch executorch
"""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.runner.source_build.__main__ import main
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main(["merge", *sys.argv[1:]]))
