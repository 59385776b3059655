"""Makes a config: `python model_profiling/scripts/generate_config.py --model FILE.pte --output DIR_OR_FILE`.

Takes the options of `sme2prof config new`; on a terminal it asks for what is missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["config", "new", *sys.argv[1:]]))
