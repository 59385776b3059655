#!/usr/bin/env python3
"""Turn the log of a trace runner (XNNPACK logging built in) into a kernels.csv.

Kernels that the log announces become `configured` rows, without a count: they are candidates. Matrix
operators that ran become `executed` rows. With --etdump the operators are also matched, in order, to the dump
of that run.

example: python model_profiling/tools/xnntrace_to_kernels.py --xnntrace run_xnntrace.log --out run_kernels.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.analysis.kernels import kernels_csv, unknown_kernels
    from model_profiling.analysis.xnntrace import (
        SequenceMatch,
        XnnTrace,
        kernel_uses,
        match_events,
        read_xnntrace,
    )
    from model_profiling.cli.frame import say, warn
    from model_profiling.cli.script import output_file, run_tool, tool_parser
    from model_profiling.core import files
    from model_profiling.core.records import csv_text
    from model_profiling.core.stdio import checked_output
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: list[str] | None = None) -> int:
    return run_tool(_convert, _parser().parse_args(argv))


def _convert(options: argparse.Namespace) -> int:
    trace = read_xnntrace(options.xnntrace, pid=options.pid, follow=True)
    match = match_events(trace.steps, _event_names(options.etdump)) if options.etdump else None
    uses = kernel_uses(trace)
    files.write_out(options.out, kernels_csv(options.model_id or options.xnntrace.stem, uses))
    say(f"wrote {len(uses)} rows to {files.display_name(options.out)}")
    if options.operators:
        _write_operators(options.operators, trace, match)
        say(f"wrote {len(trace.steps)} operators to {files.display_name(options.operators)}")
    for name in unknown_kernels(uses):
        warn(f"the kit cannot read the kernel name {name}")
    if match and match.departure:
        say(f"log and dump differ: {match.departure}", err=True)
        return 1
    if match:
        say(f"all {len(match.pairs)} operators match the dump")
    return 0


def _event_names(path: Path) -> list[str]:
    from model_profiling.etdump import read_etdump

    table = read_etdump(path)
    return [str(name) for name in table.text(table.name)[table.is_delegated]]


def _write_operators(path: Path, trace: XnnTrace, match: SequenceMatch | None) -> None:
    events = {step.line: event for step, event in match.pairs} if match else {}
    rows = (
        (number, step.index, step.name, int(step.skipped), events.get(step.line, ""))
        for number, call in enumerate(trace.calls)
        for step in call.steps
    )
    header = ("delegate_call", "operator_index", "operator", "skipped", "event")
    files.write_out(path, csv_text((header, *rows)))


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("--xnntrace", type=Path, required=True, help="the runner's log, or an Android logcat")
    parser.add_argument("--out", type=output_file, required=True, help="the kernels.csv to write")
    parser.add_argument("--model-id", help="first column of every row (default: the log's name)")
    parser.add_argument("--etdump", type=Path, help="dump of the same run, to match operators with")
    parser.add_argument("--operators", type=output_file, help="also write the operators in order to this csv")
    parser.add_argument("--pid", type=int, help="process to take from a logcat with several")
    return parser


if __name__ == "__main__":
    sys.exit(main())
