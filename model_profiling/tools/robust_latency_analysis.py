#!/usr/bin/env python3
"""Statistics of end-to-end latency: centre and spread; also compares two files.

Takes an ETDump, a timeline CSV, a runner's result or `_robust_stats.json`, or a list of milliseconds. Writes
`<name>_robust_stats.json` beside the file. With --compare, the first file is the baseline.

With --timeline-csv FILE instead of FILE, nothing is written unless --output-dir is given; files of an earlier
call in that folder are replaced, and a comparison gets its own file.

Dumps and timelines were measured with the tracer on, and the output says so. Files of emulated runs and of
runs that trace kernels are refused: their times are not latencies.

example: python model_profiling/tools/robust_latency_analysis.py off_exec_all_runs_timeline.csv \\
           --compare on_exec_all_runs_timeline.csv --name1 SME2-off --name2 SME2-on
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.analysis.input_files import (
        Latencies,
        check_latencies,
        misnamed,
        read_latencies,
        why_not_compared,
    )
    from model_profiling.cli.frame import say, say_wrote, warn
    from model_profiling.cli.script import output_file, output_folder, run_tool, tool_parser
    from model_profiling.core import files
    from model_profiling.core.errors import InputError
    from model_profiling.core.stdio import checked_output
    from model_profiling.report.document import make_table
    from model_profiling.report.text import render_terminal
    from model_profiling.runs import Run, Times
    from model_profiling.runs.comparability import Timed, compare_timed, timed_as_kept
    from model_profiling.statistics.latency import (
        LatencySummary,
        StabilityWarning,
        latency_warnings,
        summarize,
    )
    from model_profiling.statistics.speedup import Speedup
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if (options.file is None) == (options.timeline_csv is None):
        parser.error("give one file, as FILE or with --timeline-csv")
    if options.output and options.output_dir:
        parser.error("give --output or --output-dir")
    if options.name and options.name1:
        parser.error("--name and --name1 mean the same; give one of them")
    return run_tool(_analyse, options)


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="file with the latencies")
    parser.add_argument(
        "--timeline-csv",
        type=Path,
        metavar="FILE",
        help=("the same; nothing is written unless --output or --output-dir is given"),
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a second file, the candidate")
    parser.add_argument("--name", help="name of the only file")
    parser.add_argument("--name1", help="name of the first file")
    parser.add_argument("--name2", help="name of the second file")
    parser.add_argument("--output", type=output_file, help="the JSON file to write")
    parser.add_argument("--output-dir", type=output_folder, help="folder for <name>_robust_stats.json")
    parser.add_argument("--verbose", action="store_true", help="also print every latency")
    parser.add_argument("--force", action="store_true", help="replace the JSON file if it exists")
    return parser


def _analyse(options: argparse.Namespace) -> int:
    path = options.file or options.timeline_csv
    ours = _latencies(path)
    theirs = _latencies(options.compare) if options.compare else None
    output = _output(options, path)
    if output is not None:
        _check_free(output, force=options.force or options.output_dir is not None)
    names = [
        options.name or options.name1 or path.stem,
        options.name2 or (theirs.path.stem if theirs else ""),
    ]
    both = zip(names, (ours, theirs), strict=True)
    if wrong := misnamed([(path, names[0]), *([(options.compare, names[1])] if theirs else ())]):
        warn(wrong)
    described = [(name, found, summarize(found.flat)) for name, found in both if found]
    warnings = {name: tuple(latency_warnings(found.rounds)) for name, found, _ in described}
    speedup = _speedup(ours, theirs) if theirs else None
    for name, latencies, _ in described:
        if latencies.tracer_on:
            say(f"{name}: measured with the tracer on, which costs time")
        if options.verbose:
            say(f"{name}: {', '.join(f'{value:.4f}' for value in latencies.flat)} ms")
    say(_table(described))
    for name, found in warnings.items():
        for warning in found:
            say(f"warning: {name}: {warning}")
    if speedup:
        say(f"{names[1]} compared with {names[0]}: {speedup.verdict.value} ({speedup.reason})")
    if output is None:
        return 0
    _write(output, {"name": names[0], **_content(ours, described[0][2], warnings[names[0]], speedup, theirs)})
    if theirs and speedup and options.output_dir:
        compared = output.with_name(f"{path.stem}_vs_{theirs.path.stem}_robust_comparison.json")
        _write(compared, _comparison(described, speedup))
    return 0


def _write(path: Path, content: dict[str, object]) -> None:
    files.write_out(path, files.json_text(content))
    say_wrote(path)


def _output(options: argparse.Namespace, path: Path) -> Path | None:
    """The file to write: as named, in the folder named, or beside an input given without an option."""
    if options.output_dir:
        folder: Path = options.output_dir
        return folder / _beside(path).name
    if options.output or options.file:
        output: Path = options.output or _beside(path)
        return output
    return None


def _latencies(path: Path) -> Latencies:
    times, warmup_runs, turn_length = check_latencies(path)
    if times is Times.UNKNOWN:
        say(f"{path.name}: the machine is not recorded")
    return read_latencies(path, warmup_runs=warmup_runs, turn_length=turn_length)


def _check_free(output: Path, *, force: bool) -> None:
    if files.is_stream(output) or not output.exists():
        return
    run = Run.around(output)
    for result in run.results if run else ():
        if run and result.latency and (run.path / result.latency).resolve() == output.resolve():
            raise InputError(f"{output} contains the latencies of the run", "give --output")
    if not force:
        raise InputError(f"{output} exists", "give --output, or --force to replace it")


def _beside(path: Path) -> Path:
    """`<name>_robust_stats.json`; statistics of statistics go into the same file."""
    stem = path.stem.removesuffix("_robust_stats")
    return path.with_name(f"{stem}_robust_stats.json")


def _speedup(baseline: Latencies, candidate: Latencies) -> Speedup:
    """Pair rounds only if both files were measured in the same run."""
    why_not = why_not_compared(baseline.path, candidate.path)
    if baseline.tracer_on != candidate.tracer_on:
        why_not = "one was measured with the tracer on, the other without"
    runs = [found.path if found else None for found in map(Run.around, (baseline.path, candidate.path))]
    same_run = runs[0] is not None and runs[0] == runs[1] and len(baseline.rounds) > 1
    return compare_timed(_timed(baseline), _timed(candidate), same_run=same_run, not_comparable=why_not)


def _timed(found: Latencies) -> Timed:
    """Latencies with their turns, if the file holds statistics of a run that keeps them."""
    run = Run.around(found.path)
    result = run.manifest.result_of(found.path, run.path) if run and run.manifest else None
    if run is None or result is None or found.kind != "statistics":
        return Timed(found.rounds)
    return timed_as_kept(found.rounds, run.journal, result.series)


_FIELDS = ("median", "mean", "trimmed_mean", "minimum", "p5", "p95", "p99", "maximum", "mad")


def _table(described: Sequence[tuple[str, Latencies, LatencySummary]]) -> str:
    found = [summary for _, _, summary in described]
    rows = [("runs", *(str(summary.count) for summary in found))]
    rows += [(f"{name} ms", *(f"{getattr(summary, name):.4f}" for summary in found)) for name in _FIELDS]
    rows += [(name, *(f"{getattr(summary, name):.2%}" for summary in found)) for name in ("cv", "robust_cv")]
    table = make_table(("", *(name for name, _, _ in described)), rows, numbers=range(1, len(found) + 1))
    return render_terminal([table])


def _content(
    ours: Latencies,
    summary: LatencySummary,
    warnings: Sequence[StabilityWarning],
    speedup: Speedup | None,
    theirs: Latencies | None,
) -> dict[str, object]:
    content: dict[str, object] = {
        "schema_version": 1,
        "source": str(ours.path),
        "source_kind": ours.kind,
        "tracer_on": ours.tracer_on,
        "unit": "ms",
        "count": summary.count,
        "mean_ms": summary.mean,
        "std_dev_ms": summary.std,
        "cv_percent": 100 * summary.cv,
        "median_ms": summary.median,
        "min_ms": summary.minimum,
        "max_ms": summary.maximum,
        "end_to_end_ms": summary.as_dict(),
        "end_to_end_rounds_ms": ours.rounds,
        "latencies_ms": ours.flat,
        "warnings": [warning.as_dict() for warning in warnings],
    }
    if speedup and theirs:
        content["comparison"] = {"candidate": str(theirs.path), **speedup.as_dict()}
    return content


def _comparison(
    described: Sequence[tuple[str, Latencies, LatencySummary]], speedup: Speedup
) -> dict[str, object]:
    """Both sides and the speedup of the second; the verdict says whether it is more than noise."""
    sides = {
        f"config{number}": {
            "name": name,
            "median_ms": summary.median,
            "trimmed_mean_ms": summary.trimmed_mean,
            "cv_percent": 100 * summary.cv,
            "count": summary.count,
        }
        for number, (name, _, summary) in enumerate(described, 1)
    }
    first, second = (summary for _, _, summary in described)
    ratios = {
        "median_based": first.median / second.median,
        "trimmed_mean_based": first.trimmed_mean / second.trimmed_mean,
    }
    return {"schema_version": 1, **sides, "speedup": {**ratios, **speedup.as_dict()}}


if __name__ == "__main__":
    sys.exit(main())
