#!/usr/bin/env python3
"""Turn an ETDump of any runner into CSV: a timeline of events and statistics of operators.

examples:
  python model_profiling/tools/etdump_to_csv.py --etdump run.etdump --out-dir csv --all-runs
  python model_profiling/tools/etdump_to_csv.py --etdump run.etdump --model m.pte --out-dir csv --run-index 3
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.analysis.series import SeriesAnalysis
    from model_profiling.cli.frame import say_wrote, warn
    from model_profiling.cli.script import output_folder, run_tool, tool_parser
    from model_profiling.core import files
    from model_profiling.core.errors import InputError, ProfilingError
    from model_profiling.core.records import read_table
    from model_profiling.core.stdio import checked_output
    from model_profiling.program.etrecord import read_etrecord
    from model_profiling.report.csv_files import TEXT_COLUMNS, csv_paths, write_stats, write_timeline
    from model_profiling.workflow.analyse import analyse
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: list[str] | None = None) -> int:
    return run_tool(_convert, _parser().parse_args(argv))


def _convert(options: argparse.Namespace) -> None:
    record = _readable(options.etrecord, strict=options.strict_etrecord)
    series = analyse(options.etdump, model=options.model, etrecord=record).series[0]
    for path in _write(options, series):
        say_wrote(path)
    if not series.times.are_latencies:
        warn(f"the times are from {series.times.origin}, so they are not latencies")


def _readable(etrecord: Path | None, *, strict: bool) -> Path | None:
    """The record if it can be read; otherwise an error if `strict`, else a warning and None."""
    try:
        if etrecord is not None:
            read_etrecord(etrecord)
    except ProfilingError as problem:
        if strict:
            raise
        warn(f"{problem.problem}; continuing without it")
        return None
    return etrecord


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
    _, read = read_table(path.read_bytes().decode(), path, "write it again")
    rows = [{name: _value(name, text) for name, text in row.items()} for row in read]
    beside = path.with_suffix(".json")
    files.write_text(beside, json.dumps(rows, indent=1) + "\n")
    return beside


def _value(column: str, text: str) -> str | int | float | None:
    """Convert by column, not by look: a model may be called 7."""
    if column in TEXT_COLUMNS:
        return text
    return (float(text) if "." in text or "e" in text else int(text)) if text else None


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("--etdump", type=Path, required=True, help="the dump to read")
    parser.add_argument("--out-dir", type=output_folder, required=True, help="folder to write to")
    parser.add_argument("--model", type=Path, help="the .pte that was run, for categories by graph")
    parser.add_argument("--etrecord", type=Path, help="its record, for places in the model")
    parser.add_argument(
        "--strict-etrecord",
        action="store_true",
        help=("fail if the record cannot be read, instead of continuing without it"),
    )
    parser.add_argument("--run-index", type=int, default=0, help="the run of the timeline (default 0)")
    parser.add_argument("--all-runs", action="store_true", help="a timeline of all runs, and one of run 0")
    parser.add_argument("--model-id", help="text for the column model_id (default: the dump's name)")
    parser.add_argument("--json", action="store_true", help="also write each file as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
