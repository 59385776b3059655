"""Checks the setup: `python model_profiling/scripts/validate_setup.py [--prerequisites] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.doctor import examine, prerequisites
from model_profiling.printable import printable


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check that this machine can profile; the same as `sme2prof doctor`."
    )
    parser.add_argument(
        "--prerequisites", action="store_true", help="only what must be there before installing"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    options = parser.parse_args()
    diagnosis = prerequisites() if options.prerequisites else examine()
    print(printable(json.dumps(diagnosis.as_dict(), indent=2) if options.json else diagnosis.as_text()))
    return 0 if diagnosis.ok else 1


if __name__ == "__main__":
    sys.exit(main())
