"""Analyse a run directory again: CSV files beside each dump and analysis_summary.json.

example:
  python model_profiling/scripts/analyze_results.py --run-dir out_toy_cnn/runs/linux
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
    parser.add_argument("--model", help="the .pte that was run (default: what the manifest says)")
    parser.add_argument("--etrecord", help="its record (default: the one beside the .pte)")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    options = parser.parse_args(argv)
    words = ["analyze", options.run_dir]
    for flag in ("model", "etrecord"):
        if getattr(options, flag):
            words += [f"--{flag}", getattr(options, flag)]
    return sme2prof(words + (["--json"] if options.json else []))


if __name__ == "__main__":
    sys.exit(main())
