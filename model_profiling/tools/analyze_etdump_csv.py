#!/usr/bin/env python3
"""Find bottlenecks in timeline CSV files: categories, operators, portable and delegated; compare two files.

examples:
  python model_profiling/tools/analyze_etdump_csv.py --timeline-csv off/m_all_runs_timeline.csv --verbose
  python model_profiling/tools/analyze_etdump_csv.py --timeline-csv off/m_all_runs_timeline.csv
      --compare on/m_all_runs_timeline.csv --name1 SME2-Off --name2 SME2-On --output-dir out --verbose

The speedup says how many times faster --name2 (the file of --compare) is than --name1. Timelines of emulated
runs and of runs that trace kernels are refused: their times are not latencies.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start


def main(argv: list[str] | None = None) -> int:
    return start("tools.analyze_etdump_csv", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
