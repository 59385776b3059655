#!/usr/bin/env python3
"""Write the kernel view: which kernels ran or were configured with SME2 on, and which with SME2 off.

example:
  python model_profiling/tools/generate_kernel_view.py --sme2-on on_kernels.csv --sme2-off off_kernels.csv
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start


def main(argv: list[str] | None = None) -> int:
    return start("tools.generate_kernel_view", __doc__, argv)


if __name__ == "__main__":
    sys.exit(main())
