#!/usr/bin/env python3
"""Statistics of the end-to-end times in a timeline CSV: centre and spread; also beside those of a second one.

Timelines were measured with the tracer on, in one process each, which gives no verdict: `sme2prof compare`
does. Files of emulated runs and of runs that trace kernels are refused: their times are not latencies.
Nothing is written unless --output-dir is given; files of an earlier call in that folder are replaced.

example: python model_profiling/tools/robust_latency_analysis.py \\
           --timeline-csv off_exec_all_runs_timeline.csv --compare on_exec_all_runs_timeline.csv \\
           --name1 SME2-off --name2 SME2-on
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
