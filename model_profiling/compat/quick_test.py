"""`run_quick_test.py`: the smoke test of the documents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from model_profiling.cli.frame import say
from model_profiling.cli.progress import shown_progress
from model_profiling.compat.scripts import output_folder, run_tool, tool_parser
from model_profiling.core.errors import InputError
from model_profiling.core.stdio import checked_output
from model_profiling.targets import open_target, parse_target, plan_targets
from model_profiling.validation.validate import validate
from model_profiling.workflow.measure import RunOptions, run_together
from model_profiling.workflow.profile import ProfileOptions, find_or_export, make_config

_SYSTEMS = {"darwin": "mac", "linux": "linux"}


@checked_output
def run_quick_test(description: str | None) -> int:
    # Where the documents look for it when this runs from the repository.
    usual = Path("model_profiling" if Path("model_profiling").is_dir() else "", "out_toy_cnn")
    parser = tool_parser(description)
    parser.add_argument("--target", help="host (default), emulated, auto, android[:SERIAL] or ssh:HOST")
    parser.add_argument(
        "--platform",
        choices=(*_SYSTEMS.values(), "android"),
        help="the system that this must run on; android: the phone that adb sees",
    )
    parser.add_argument("--dtype", default="fp16", choices=("fp32", "fp16", "int8"))
    parser.add_argument("--outdir", type=output_folder, default=usual, help="default: %(default)s")
    return run_tool(_test, parser.parse_args())


def _test(options: argparse.Namespace) -> int:
    here = _SYSTEMS.get(sys.platform, sys.platform)
    if options.platform not in (None, here, "android"):
        fix = "leave --platform out: this tests the machine on which it runs"
        raise InputError(f"this is {here}, not {options.platform}", fix)
    choice = parse_target(options.target or ("android" if options.platform == "android" else "host"))
    # In the folder where documents look for it, on whatever system; an earlier run is kept under its date.
    run_dir = options.outdir / "runs" / ("android" if choice.name == "android" else "mac")
    with shown_progress(lines=True) as progress:
        target = open_target(plan_targets(choice).main)
        program = find_or_export("toy_cnn", dtype=options.dtype, outdir=options.outdir, progress=progress)
        config = make_config(target, program, run_dir, ProfileOptions(budget_s=6))
        (outcome,) = run_together([config], target, RunOptions(force=True), progress=progress)
    validation = validate(outcome.run_dir)
    say(f"exported {program}\n\n{outcome.run_dir}\n{validation.as_text()}")
    for result in outcome.failed:
        say(f"failed: {result.series}: {result.problem}")
    ok = validation.ok and not outcome.failed
    say("success" if ok else "failure")
    return 0 if ok else 1
