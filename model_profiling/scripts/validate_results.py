"""Check that a run directory holds what it promises and that it makes sense.

example:
  python model_profiling/scripts/validate_results.py --results out_toy_cnn/runs/linux
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
    parser.add_argument("--results", required=True, help="a run directory")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    options = parser.parse_args(argv)
    return sme2prof(["validate", options.results, *(["--json"] if options.json else [])])


if __name__ == "__main__":
    sys.exit(main())
