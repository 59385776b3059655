"""`etdump_to_csv.py` and `analyze_etdump_csv.py`: timelines as CSV files, and what takes time in them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.input_files import (
    analyse_timeline,
    check_latencies,
    model_id_of,
    why_not_compared,
)
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.cli.frame import say, say_wrote, warn
from model_profiling.compat.scripts import output_folder, run_tool, tool_parser
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import speedup
from model_profiling.core.records import read_table
from model_profiling.core.stdio import checked_output
from model_profiling.program.etrecord import read_etrecord
from model_profiling.report.breakdown import pair_table
from model_profiling.report.csv_files import TEXT_COLUMNS, csv_paths, write_stats, write_timeline
from model_profiling.report.operator_sections import changes_table
from model_profiling.report.text import render_terminal
from model_profiling.report.tool_files import series_blocks, write_bottlenecks, write_comparison
from model_profiling.workflow.analyse import analyse


@checked_output
def etdump_to_csv(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--etdump", type=Path, required=True, help="the dump to read")
    parser.add_argument("--out-dir", type=output_folder, required=True, help="folder to write to")
    parser.add_argument("--model", type=Path, help="the .pte that was run, for categories by graph")
    parser.add_argument("--etrecord", type=Path, help="its record, for places in the model")
    parser.add_argument("--strict-etrecord", action="store_true", help="fail if the record cannot be read")
    parser.add_argument("--run-index", type=int, default=0, help="the run of the timeline (default 0)")
    parser.add_argument("--all-runs", action="store_true", help="a timeline of all runs, and one of run 0")
    parser.add_argument("--model-id", help="text for the column model_id (default: the dump's name)")
    parser.add_argument("--json", action="store_true", help="also write each file as JSON")
    return run_tool(_convert, parser.parse_args(argv))


def _convert(options: argparse.Namespace) -> None:
    if options.etrecord is not None:
        try:
            read_etrecord(options.etrecord)
        except ProfilingError as problem:
            if options.strict_etrecord:
                raise
            warn(f"{problem.problem}; continuing without it")
            options.etrecord = None
    series = analyse(options.etdump, model=options.model, etrecord=options.etrecord).series[0]
    for path in _write(options, series):
        say_wrote(path)
    if not series.times.are_latencies:
        warn(f"the times are from {series.times.origin}, so they are not latencies")


def _write(options: argparse.Namespace, series: SeriesAnalysis) -> list[Path]:
    dump = series.first
    if not options.all_runs and not 0 <= options.run_index < dump.runs:
        raise InputError(
            f"there is no run {options.run_index} in {options.etdump}", f"choose from 0 to {dump.runs - 1}"
        )
    paths = csv_paths(options.out_dir, dump.stem)
    name = options.model_id or dump.stem
    number = 0 if options.all_runs else options.run_index
    single = paths.run0_timeline.with_name(paths.run0_timeline.name.replace("_run0_", f"_run{number}_"))
    written = [single, paths.stats]
    write_timeline(single, dump, name, run=number)
    write_stats(paths.stats, series, name)
    if options.all_runs:
        write_timeline(paths.timeline, dump, name)
        written.insert(0, paths.timeline)
    return written + ([_as_json(path) for path in written] if options.json else [])


def _as_json(path: Path) -> Path:
    """Write the rows as a plain JSON list, as readers of such tables expect; hence no schema_version."""
    _, table = read_table(path.read_bytes().decode(), path, "write it again")
    rows = [{name: _value(name, text) for name, text in row.items()} for row in table]
    beside = path.with_suffix(".json")
    files.write_text(beside, json.dumps(rows, indent=1) + "\n")
    return beside


def _value(column: str, text: str) -> str | int | float | None:
    """Convert by column, not by look: a model may be called 7."""
    if column in TEXT_COLUMNS:
        return text
    return (float(text) if "." in text or "e" in text else int(text)) if text else None


@checked_output
def analyze_etdump_csv(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--timeline-csv", type=Path, nargs="+", required=True, help="a timeline CSV file")
    parser.add_argument("--compare", type=Path, nargs="+", help="a second one to compare it with")
    parser.add_argument("--name1", default="first", help="name of the first")
    parser.add_argument("--name2", default="second", help="name of the second")
    parser.add_argument("--output-dir", type=output_folder, help="folder for the summaries as CSV")
    parser.add_argument("--model-name", help="prefix of the names of written files")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the longest operators")
    return run_tool(_find_bottlenecks, parser.parse_args(argv))


def _find_bottlenecks(options: argparse.Namespace) -> None:
    sides = [(_one("--timeline-csv", options.timeline_csv), options.name1 if options.compare else "")]
    if options.compare:
        sides.append((_one("--compare", options.compare), options.name2))
    for path, _ in sides:
        check_latencies(path)
    every = [series_of([analyse_timeline(path, name)]) for path, name in sides]
    models = [(options.model_name or model_id_of(path)).replace("/", "-") for path, _ in sides]
    stems = models if len(set(models)) == len(models) else [f"{models[0]}_{name}" for _, name in sides]
    written: list[Path] = []
    for series, stem in zip(every, stems, strict=True):
        if not series.times.are_latencies:
            say(f"{series.name}: the machine is not recorded; times are shown as recorded")
        say(render_terminal(series_blocks(series, most=10 if options.verbose else 3)))
        if options.output_dir:
            written += write_bottlenecks(series, options.output_dir, stem.replace("/", "-"))
    if options.compare:
        names = (options.name1, options.name2)
        label, why_not = f"{options.name2} vs {options.name1}", why_not_compared(sides[0][0], sides[1][0])
        pairing = pair_series(*every, label=label, not_comparable=why_not)
        ratio = f"{speedup(pairing.traced_ratio)} (one process each: no confidence interval)"
        say(f"\n{label}: {f'not comparable, {why_not}' if why_not else ratio}")
        say(render_terminal([pair_table(pairing, names)]))
        if options.verbose:
            changed = sorted(pairing.operators, key=lambda pair: -abs(pair.delta_ms))[:10]
            say(render_terminal([changes_table(pairing, changed, names)]))
        if options.output_dir:
            written += write_comparison(pairing, options.output_dir, models[0], names)
    for path in written:
        say_wrote(path)


def _one(option: str, paths: list[Path]) -> Path:
    """A shell pattern may match several files, one per thread count."""
    if len(paths) > 1:
        raise InputError(f"{option} was given {len(paths)} files", f"give one of them: {paths[0]}")
    return paths[0]
