#!/usr/bin/env python3
"""Statistics of end-to-end latency: centre and spread; also compares two files.

Takes an ETDump, a timeline CSV, a runner's result or `_robust_stats.json`, or a list of milliseconds. Writes
`<name>_robust_stats.json` beside the file. With --compare, the first file is the baseline.

With --timeline-csv FILE instead of FILE, nothing is written unless --output-dir is given; files of an earlier
call in that folder are replaced, and a comparison gets its own file.

Dumps and timelines were measured with the tracer on, and the output says so. Files of emulated runs and of
runs that trace kernels are refused: their times are not latencies.

example: python model_profiling/tools/robust_latency_analysis.py off_exec_all_runs_timeline.csv \\
           --compare on_exec_all_runs_timeline.csv --name1 SME2-off --name2 SME2-on
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start


def main(argv: list[str] | None = None) -> int:
    return start("tools.robust_latency_analysis", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
