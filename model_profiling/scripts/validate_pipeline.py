#!/usr/bin/env python3
"""Check a config, its model and runners, the output folder and, after a run, the results.

example:
  python model_profiling/scripts/validate_pipeline.py --config my_run.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.cli.frame import facts, say
    from model_profiling.cli.progress import shown_progress
    from model_profiling.cli.script import run_tool, tool_parser
    from model_profiling.core.stdio import checked_output
    from model_profiling.validation.validate import validate_pipeline
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: list[str] | None = None) -> int:
    parser = tool_parser(__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the config to check")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    return run_tool(_validate, parser.parse_args(argv))


def _validate(options: argparse.Namespace) -> int:
    with shown_progress() as progress:
        validation = validate_pipeline(options.config, progress=progress)
    if options.json:
        facts(validation.as_dict())
    else:
        say(validation.as_text())
    return 0 if validation.ok else 1


if __name__ == "__main__":
    sys.exit(main())
