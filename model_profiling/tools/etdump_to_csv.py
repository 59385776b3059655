#!/usr/bin/env python3
"""Turn an ETDump of any runner into CSV: a timeline of events and statistics of operators.

examples:
  python model_profiling/tools/etdump_to_csv.py --etdump run.etdump --out-dir csv --all-runs
  python model_profiling/tools/etdump_to_csv.py --etdump run.etdump --model m.pte --out-dir csv --run-index 3
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start


def main(argv: list[str] | None = None) -> int:
    return start("tools.etdump_to_csv", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
