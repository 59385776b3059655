"""Write one Markdown page about several runs, side by side: number formats, platforms, before and after.

example:
  python model_profiling/scripts/generate_combined_report.py \\
    --run-dirs out_toy_cnn/runs/linux out_mobilenet_v3_small/runs/linux --out combined_report.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.errors import ProfilingError
from model_profiling.workflow.report import write_combined_report


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run-dirs", "--run-dir", type=Path, nargs="+", required=True, help="two or more run directories"
    )
    parser.add_argument("--out", type=Path, default=Path("combined_report.md"), help="file to write")
    parser.add_argument("--title", help="the first heading")
    options = parser.parse_args(argv)
    try:
        runs = write_combined_report(options.run_dirs, options.out, title=options.title)
    except ProfilingError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    print(f"wrote {options.out}: {len(runs)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
