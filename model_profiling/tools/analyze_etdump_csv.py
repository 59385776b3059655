"""Find bottlenecks in timeline CSV files: categories, operators, portable against delegated; and compare two.

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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.analysis.latency_files import check_latencies
from model_profiling.analysis.pairing import Pairing, pair_dumps
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.analysis.timeline import analyse_timeline
from model_profiling.cli.script import run_tool, tool_parser
from model_profiling.report.comparison_csv import write_comparison
from model_profiling.report.csv_files import write_summaries
from model_profiling.wording import plural


def main(argv: list[str] | None = None) -> int:
    return run_tool(_run, _parser().parse_args(argv))


def _run(options: argparse.Namespace) -> None:
    for path in (options.timeline_csv, options.compare):
        if path:
            check_latencies(path)
    first = analyse_timeline(options.timeline_csv, options.name1 if options.compare else "")
    dumps = [first]
    if options.compare:
        dumps.append(analyse_timeline(options.compare, options.name2))
    written: list[Path] = []
    for number, dump in enumerate(dumps):
        _print_dump(dump, verbose=options.verbose)
        if options.output_dir:
            # Two files may share a name in different folders; what is written may not.
            same = len(dumps) > 1 and dumps[0].stem == dumps[1].stem
            stem = options.model_name or dump.stem
            stem = f"{stem}_{(options.name1, options.name2)[number]}" if same or options.model_name else stem
            written += write_summaries(dump, options.output_dir, stem.replace("/", "-"))
    if options.compare:
        pairing = pair_dumps(dumps[0], dumps[1], label=f"{options.name1} vs {options.name2}")
        _print_pairing(pairing, verbose=options.verbose)
        if options.output_dir:
            stem = options.model_name or first.stem
            written += write_comparison(pairing, options.output_dir, stem, (options.name1, options.name2))
    for path in written:
        print(f"wrote {path}")


def _print_dump(dump: DumpAnalysis, *, verbose: bool) -> None:
    latency, breakdown = dump.latency, dump.breakdown
    runs = f"{plural(dump.runs, 'run')} with the tracer on"
    if not dump.times.are_latencies:
        print(f"{dump.series}: nothing says on what machine it was measured; times are shown as recorded")
    print(f"{dump.series}: {runs}, median {latency.median:.3f} ms, mean {latency.mean:.3f} ms")
    parts = [(category.label, part) for category, part in breakdown.categories.items()]
    parts += [("framework overhead", breakdown.framework), ("unattributed", breakdown.unattributed)]
    for name, part in parts:
        print(f"  {name:20} {breakdown.mean_ms(part):10.3f} ms {breakdown.share(part):7.1%}")
    portable = [operator for operator in dump.operators if not operator.delegated]
    share = sum(dump.share_of(operator) for operator in portable)
    print(f"  portable: {len(portable)} of {len(dump.operators)} operators, {share:.1%} of the time")
    if dump.unknown_names:
        print(f"  unknown operators, counted as Other: {', '.join(dump.unknown_names)}")
    if verbose:
        for operator in sorted(dump.operators, key=lambda one: -one.times.median_ns)[:10]:
            print(
                f"    {operator.median_ms:10.3f} ms {dump.share_of(operator):7.1%}  {operator.name}"
                f"  [{operator.category.label}, {operator.kind}, {operator.backend}]"
            )


def _print_pairing(pairing: Pairing, *, verbose: bool) -> None:
    if pairing.traced_ratio is not None:
        print(f"{pairing.label}: {pairing.traced_ratio:.3f}x (one process each: no confidence interval)")
    for category in pairing.categories:
        ratio = f"{category.ratio:.3f}x" if category.ratio else "-"
        print(
            f"  {category.name:20} {category.baseline_ms:10.3f} -> {category.candidate_ms:10.3f} ms  {ratio}"
        )
    if verbose:
        changed = sorted(pairing.operators, key=lambda pair: -abs(pair.delta_ms))[:10]
        for pair in changed:
            before, after = pair.families
            print(f"    {pair.delta_ms:+10.3f} ms  {pair.change:14} {pair.main.name}  {before} -> {after}")


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("--timeline-csv", type=Path, required=True, help="a timeline CSV file")
    parser.add_argument("--compare", type=Path, help="a second one to compare it with")
    parser.add_argument("--name1", default="first", help="what to call the first")
    parser.add_argument("--name2", default="second", help="what to call the second")
    parser.add_argument("--output-dir", type=Path, help="folder for the summaries as CSV")
    parser.add_argument("--model-name", help="begin the written files' names with this")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the longest operators")
    return parser


if __name__ == "__main__":
    sys.exit(main())
