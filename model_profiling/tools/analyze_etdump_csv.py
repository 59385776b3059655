#!/usr/bin/env python3
"""Find bottlenecks in timeline CSV files: categories, operators, portable and delegated; compare two files.

examples:
  python model_profiling/tools/analyze_etdump_csv.py --timeline-csv off/m_all_runs_timeline.csv --verbose
  python model_profiling/tools/analyze_etdump_csv.py --timeline-csv off/m_all_runs_timeline.csv
      --compare on/m_all_runs_timeline.csv --name1 SME2-Off --name2 SME2-On --output-dir out --verbose

The speedup says how many times faster --name2 (the file of --compare) is than --name1. Timelines of emulated
runs and of runs that trace kernels are refused: their times are not latencies.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.analysis.input_files import (
        analyse_timeline,
        check_latencies,
        misnamed,
        model_id_of,
        why_not_compared,
    )
    from model_profiling.analysis.pairing import pair_series
    from model_profiling.analysis.series import series_of
    from model_profiling.cli.frame import say, say_wrote, warn
    from model_profiling.cli.script import output_folder, run_tool, tool_parser
    from model_profiling.core.errors import InputError
    from model_profiling.core.formatting import speedup
    from model_profiling.core.stdio import checked_output
    from model_profiling.report.breakdown import pair_table
    from model_profiling.report.operator_sections import changes_table
    from model_profiling.report.text import render_terminal
    from model_profiling.report.tool_files import series_blocks, write_bottlenecks, write_comparison
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: list[str] | None = None) -> int:
    return run_tool(_run, _parser().parse_args(argv))


def _run(options: argparse.Namespace) -> None:
    first = _one("--timeline-csv", options.timeline_csv)
    second = _one("--compare", options.compare) if options.compare else None
    named = [(first, options.name1 if second else ""), *([(second, options.name2)] if second else ())]
    for path, _ in named:
        check_latencies(path)
    if wrong := misnamed(named):
        warn(wrong)
    every = [series_of([analyse_timeline(path, name)]) for path, name in named]
    stems = _stems([options.model_name or model_id_of(path) for path, _ in named], options)
    written: list[Path] = []
    for series, stem in zip(every, stems, strict=True):
        if not series.times.are_latencies:
            say(f"{series.name}: the machine is not recorded; times are shown as recorded")
        say(render_terminal(series_blocks(series, most=10 if options.verbose else 3)))
        if options.output_dir:
            written += write_bottlenecks(series, options.output_dir, stem)
    if second:
        sides = (options.name1, options.name2)
        label, why_not = f"{options.name2} vs {options.name1}", why_not_compared(first, second)
        pairing = pair_series(*every, label=label, not_comparable=why_not)
        ratio = f"{speedup(pairing.traced_ratio)} (one process each: no confidence interval)"
        say(f"\n{label}: {f'not comparable, {why_not}' if why_not else ratio}")
        say(render_terminal([pair_table(pairing, sides)]))
        if options.verbose:
            changed = sorted(pairing.operators, key=lambda pair: -abs(pair.delta_ms))[:10]
            say(render_terminal([changes_table(pairing, changed, sides)]))
        if options.output_dir:
            stem = _plain(options.model_name or model_id_of(first))
            written += write_comparison(pairing, options.output_dir, stem, sides)
    for path in written:
        say_wrote(path)


def _one(option: str, paths: list[Path]) -> Path:
    """A shell pattern may match several files, one per thread count."""
    if len(paths) > 1:
        raise InputError(f"{option} was given {len(paths)} files", f"give one of them: {paths[0]}")
    return paths[0]


def _stems(models: list[str], options: argparse.Namespace) -> list[str]:
    """The start of each output's name: its model, plus the option's name if both are of one model."""
    if len(set(models)) == len(models):
        return [_plain(model) for model in models]
    names = (options.name1, options.name2)
    return [_plain(f"{model}_{name}") for model, name in zip(models, names, strict=True)]


def _plain(stem: str) -> str:
    return stem.replace("/", "-")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("--timeline-csv", type=Path, nargs="+", required=True, help="a timeline CSV file")
    parser.add_argument("--compare", type=Path, nargs="+", help="a second one to compare it with")
    parser.add_argument("--name1", default="first", help="name of the first")
    parser.add_argument("--name2", default="second", help="name of the second")
    parser.add_argument("--output-dir", type=output_folder, help="folder for the summaries as CSV")
    parser.add_argument("--model-name", help="prefix of the names of written files")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the longest operators")
    return parser


if __name__ == "__main__":
    sys.exit(main())
