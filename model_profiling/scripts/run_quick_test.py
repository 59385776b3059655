#!/usr/bin/env python3
"""Smoke test: export a small model, run it briefly on this machine or a phone, validate the results.

examples:
  python model_profiling/scripts/run_quick_test.py
  python model_profiling/scripts/run_quick_test.py --platform android
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.cli.frame import say
    from model_profiling.cli.progress import shown_progress
    from model_profiling.cli.script import output_folder, run_tool, tool_parser
    from model_profiling.core.errors import InputError
    from model_profiling.core.progress import Progress
    from model_profiling.core.stdio import checked_output
    from model_profiling.targets import TargetChoice, open_target, parse_target, plan_targets
    from model_profiling.validation.validate import validate
    from model_profiling.workflow.measure import RunOptions, RunOutcome, run_together
    from model_profiling.workflow.profile import ProfileOptions, find_or_export, make_config
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


_SYSTEMS = {"darwin": "mac", "linux": "linux"}


@checked_output
def main(argv: list[str] | None = None) -> int:
    # Where the documents look for it when this runs from the repository.
    usual = Path("model_profiling" if Path("model_profiling").is_dir() else "", "out_toy_cnn")
    parser = tool_parser(__doc__)
    parser.add_argument("--target", help="host (default), emulated, auto, android[:SERIAL] or ssh:HOST")
    parser.add_argument(
        "--platform",
        choices=(*_SYSTEMS.values(), "android"),
        help="the system that this must run on; android: the phone that adb sees",
    )
    parser.add_argument("--dtype", default="fp16", choices=("fp32", "fp16", "int8"))
    parser.add_argument("--outdir", type=output_folder, default=usual, help="default: %(default)s")
    return run_tool(_test, parser.parse_args(argv))


def _test(options: argparse.Namespace) -> int:
    here = _SYSTEMS.get(sys.platform, sys.platform)
    usual = "android" if options.platform == "android" else "host"
    if options.platform not in (None, here, "android"):
        fix = "leave --platform out: this tests the machine on which it runs"
        raise InputError(f"this is {here}, not {options.platform}", fix)
    with shown_progress(lines=True) as progress:
        target = parse_target(options.target or usual)
        program, done = quick_test(options.outdir, target, options.dtype, progress)
    checked = validate(done.run_dir)
    say(f"exported {program}\n\n{done.run_dir}\n{checked.as_text()}")
    for result in done.failed:
        say(f"failed: {result.series}: {result.problem}")
    ok = checked.ok and not done.failed
    say("success" if ok else "failure")
    return 0 if ok else 1


def quick_test(outdir: Path, choice: TargetChoice, dtype: str, progress: Progress) -> tuple[Path, RunOutcome]:
    """Run the smoke test in `outdir`, in the folder where documents look for it, on whatever system; an
    earlier finished run there is kept under its date."""
    target = open_target(plan_targets(choice).main)
    program = find_or_export("toy_cnn", dtype=dtype, outdir=outdir, progress=progress)
    run_dir = outdir / "runs" / ("android" if choice.kind == "android" else "mac")
    wanted = ProfileOptions(runs=5, warmup=1, rounds=6, budget_s=6)
    config = make_config(target, program, run_dir, wanted)
    (outcome,) = run_together([config], target, RunOptions(force=True), progress=progress)
    return program, outcome


if __name__ == "__main__":
    sys.exit(main())
