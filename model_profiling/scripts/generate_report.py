"""Write the Markdown report of a run.

example:
  python model_profiling/scripts/generate_report.py --run-dir out_toy_cnn/runs/linux
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.cli.main import main as sme2prof


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run-dir", required=True, help="a run directory, or any folder with dumps")
    parser.add_argument("--out", help="file to write (default: report.md in --run-dir)")
    parser.add_argument("--title", help="the first heading")
    options = parser.parse_args(argv)
    words = ["report", options.run_dir]
    for flag in ("out", "title"):
        if getattr(options, flag):
            words += [f"--{flag}", getattr(options, flag)]
    return sme2prof(words)


if __name__ == "__main__":
    sys.exit(main())
