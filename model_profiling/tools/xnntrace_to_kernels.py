#!/usr/bin/env python3
"""Turn the log of a trace runner (XNNPACK logging built in) into a kernels.csv.

Kernels that the log announces become `configured` rows, without a count: they are candidates. Matrix
operators that ran become `executed` rows. With --etdump the operators are also matched, in order, to the dump
of that run.

example: python model_profiling/tools/xnntrace_to_kernels.py --xnntrace run_xnntrace.log --out run_kernels.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start


def main(argv: list[str] | None = None) -> int:
    return start("tools.xnntrace_to_kernels", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
