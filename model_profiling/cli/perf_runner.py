"""What an earlier kit's perf_runner.py was asked for, in the words of this one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from model_profiling.cli.frame import fail
from model_profiling.cli.script import tool_parser
from model_profiling.standard_streams import answered


@answered
def main(description: str | None, argv: Sequence[str] | None = None) -> int:
    """Measures nothing: one run of one binary says nothing about SME2. Names the command that does."""
    parser = tool_parser(description)
    parser.add_argument("--model", required=True, help="the .pte")
    parser.add_argument("--quiet-runner", default="", help="the runner of timing runs")
    parser.add_argument("--verbose-runner", default="", help="the runner of runs that trace kernels")
    parser.add_argument("--exp", default="base", help="the experiment's name")
    parser.add_argument("--outdir", default="", help="where the results go")
    parser.add_argument("--mode", choices=("timing", "xnntrace", "xtrace"), default="timing")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--timing-runs", type=int, default=100)
    parser.add_argument("--output", action="store_true", help="results are always written")
    parser.add_argument("--no-output", action="store_true", help="results are always written")
    for name in ("template", "target-sec", "min-exec", "max-exec", "execs"):
        parser.add_argument(f"--xtrace-{name}", help="of Apple's xctrace, which this kit does not call")
    options = parser.parse_args(argv)
    words = ["sme2prof", "config", "new", "--model", options.model, "--threads", str(options.threads)]
    words += ["--warmup", str(options.warmup), "--runs", str(options.timing_runs)]
    words += ["--output-root", options.outdir] if options.outdir else []
    words += ["--trace"] if options.mode == "xnntrace" else []
    if options.quiet_runner:
        words += ["--runner-on", options.quiet_runner, "--runner-off", "RUNNER_BUILT_WITHOUT_SME2"]
    sampled = "sme2prof profile MODEL.pte --sample looks inside operators" if options.mode == "xtrace" else ""
    own = "without --runner-on and --runner-off it is the kit's own, which switches SME2 itself"
    notes = [text for text in (own if options.quiet_runner else "", sampled) if text]
    command = f"{shlex.join([*words, '--output', 'my_run.json'])} && sme2prof run my_run.json"
    fail("; ".join([f"perf_runner.py is no part of this kit; make a config and run it: {command}", *notes]))
    return 2
