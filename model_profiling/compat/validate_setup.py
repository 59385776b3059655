"""`validate_setup.py`: needs nothing but Python, because it also runs before anything is installed."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.core.formatting import printable
from model_profiling.core.stdio import end_like_ctrl_c
from model_profiling.doctor import examine, prerequisites
from model_profiling.doctor.checks import program_checks


def validate_setup(description: str | None) -> int:
    parser = ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--prerequisites", action="store_true", help="check only what is needed before installing"
    )
    parser.add_argument("--model", type=Path, help="also check that this .pte and its record are there")
    parser.add_argument(
        "--android-run", action="store_true", help="with --prerequisites: also check what phones need"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    options = parser.parse_args()
    end_like_ctrl_c()
    try:
        diagnosis = prerequisites(phones=options.android_run) if options.prerequisites else examine()
        programs = program_checks(options.model) if options.model is not None else ()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130
    diagnosis = replace(diagnosis, checks=(*diagnosis.checks, *programs))
    text = diagnosis.as_text()
    sys.stdout.write(printable(json.dumps(diagnosis.as_dict(), indent=2) if options.json else text) + "\n")
    return 0 if diagnosis.ok else 1
