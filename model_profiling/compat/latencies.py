"""`robust_latency_analysis.py`: statistics of end-to-end latency in any file that has some."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.analysis.input_files import (
    Latencies,
    check_latencies,
    read_latencies,
    why_not_compared,
)
from model_profiling.cli.frame import say, say_wrote
from model_profiling.compat.scripts import output_file, output_folder, run_tool, tool_parser
from model_profiling.core import files
from model_profiling.core.stdio import checked_output
from model_profiling.report.document import make_table
from model_profiling.report.text import render_terminal
from model_profiling.runs import Run, Times
from model_profiling.runs.comparability import Timed, compare_timed, timed_as_kept
from model_profiling.statistics.latency import LatencySummary, latency_warnings, summarize
from model_profiling.statistics.speedup import Speedup


@checked_output
def robust_latency_analysis(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("file", type=Path, nargs="?", help="file with the latencies")
    parser.add_argument("--timeline-csv", type=Path, metavar="FILE", help="the same")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a second file, the candidate")
    parser.add_argument("--name1", "--name", help="name of the first file")
    parser.add_argument("--name2", help="name of the second file")
    parser.add_argument("--output", type=output_file, help="the JSON file to write")
    parser.add_argument("--output-dir", type=output_folder, help="folder for <name>_robust_stats.json")
    parser.add_argument("--verbose", action="store_true", help="also print every latency")
    options = parser.parse_args(argv)
    if (options.file is None) == (options.timeline_csv is None):
        parser.error("give one file, as FILE or with --timeline-csv")
    if options.output and options.output_dir:
        parser.error("give --output or --output-dir")
    return run_tool(_analyse, options)


@dataclass(frozen=True, slots=True)
class _NamedFile:
    name: str
    latencies: Latencies
    summary: LatencySummary

    @classmethod
    def read(cls, path: Path, name: str | None) -> _NamedFile:
        times, warmup_runs, turn_length = check_latencies(path)
        if times is Times.UNKNOWN:
            say(f"{path.name}: the machine is not recorded")
        latencies = read_latencies(path, warmup_runs=warmup_runs, turn_length=turn_length)
        return cls(name or path.stem, latencies, summarize(latencies.flat))

    @property
    def timed(self) -> Timed:
        """The latencies with their turns, if the file holds statistics of a run that keeps them."""
        path, rounds = self.latencies.path, self.latencies.rounds
        run = Run.around(path)
        result = run.manifest.result_of(path, run.path) if run and run.manifest else None
        if run is None or result is None or self.latencies.kind != "statistics":
            return Timed(rounds)
        return timed_as_kept(rounds, run.journal, result.series)


def _analyse(options: argparse.Namespace) -> None:
    path: Path = options.file or options.timeline_csv
    sides = [_NamedFile.read(path, options.name1)]
    if options.compare:
        sides.append(_NamedFile.read(options.compare, options.name2))
    for side in sides:
        if side.latencies.tracer_on:
            say(f"{side.name}: measured with the tracer on, which costs time")
        if options.verbose:
            say(f"{side.name}: {', '.join(f'{value:.4f}' for value in side.latencies.flat)} ms")
    say(_table(sides))
    for side in sides:
        for warning in latency_warnings(side.latencies.rounds):
            say(f"warning: {side.name}: {warning}")
    speedup = _speedup(*sides) if options.compare else None
    if speedup:
        say(f"{sides[1].name} compared with {sides[0].name}: {speedup.verdict.value} ({speedup.reason})")
    stem = path.stem.removesuffix("_robust_stats")
    if options.output or options.output_dir:
        statistics = _statistics(sides[0])
        if speedup:
            statistics["comparison"] = {"candidate": str(options.compare), **speedup.as_dict()}
        _write(options.output or options.output_dir / f"{stem}_robust_stats.json", statistics)
    if speedup and options.output_dir:
        name = f"{path.stem}_vs_{options.compare.stem}_robust_comparison.json"
        _write(options.output_dir / name, _comparison(sides[0], sides[1], speedup))


def _write(path: Path, content: dict[str, object]) -> None:
    files.write_out(path, files.json_text(content))
    say_wrote(path)


def _speedup(baseline: _NamedFile, candidate: _NamedFile) -> Speedup:
    """Pair rounds only if both files were measured in the same run."""
    before, after = baseline.latencies, candidate.latencies
    why_not = why_not_compared(before.path, after.path)
    if before.tracer_on != after.tracer_on:
        why_not = "one was measured with the tracer on, the other without"
    runs = [run.path if run else None for run in map(Run.around, (before.path, after.path))]
    same_run = runs[0] is not None and runs[0] == runs[1] and len(before.rounds) > 1
    return compare_timed(baseline.timed, candidate.timed, same_run=same_run, not_comparable=why_not)


_FIELDS = ("median", "mean", "trimmed_mean", "minimum", "p5", "p95", "p99", "maximum", "mad")


def _table(sides: Sequence[_NamedFile]) -> str:
    summaries = [side.summary for side in sides]
    rows = [("runs", *(str(summary.count) for summary in summaries))]
    rows += [(f"{name} ms", *(f"{getattr(summary, name):.4f}" for summary in summaries)) for name in _FIELDS]
    rows += [
        (name, *(f"{getattr(summary, name):.2%}" for summary in summaries)) for name in ("cv", "robust_cv")
    ]
    table = make_table(("", *(side.name for side in sides)), rows, numbers=range(1, len(sides) + 1))
    return render_terminal([table])


def _statistics(side: _NamedFile) -> dict[str, object]:
    latencies, summary = side.latencies, side.summary
    return {
        "schema_version": 1,
        "name": side.name,
        "source": str(latencies.path),
        "source_kind": latencies.kind,
        "tracer_on": latencies.tracer_on,
        "unit": "ms",
        "count": summary.count,
        "mean_ms": summary.mean,
        "std_dev_ms": summary.std,
        "cv_percent": 100 * summary.cv,
        "median_ms": summary.median,
        "min_ms": summary.minimum,
        "max_ms": summary.maximum,
        "end_to_end_ms": summary.as_dict(),
        "end_to_end_rounds_ms": latencies.rounds,
        "latencies_ms": latencies.flat,
        "warnings": [warning.as_dict() for warning in latency_warnings(latencies.rounds)],
    }


def _comparison(first: _NamedFile, second: _NamedFile, speedup: Speedup) -> dict[str, object]:
    """Both sides and the speedup of the second; the verdict says whether it is more than noise."""
    sides = {
        f"config{number}": {
            "name": side.name,
            "median_ms": side.summary.median,
            "trimmed_mean_ms": side.summary.trimmed_mean,
            "cv_percent": 100 * side.summary.cv,
            "count": side.summary.count,
        }
        for number, side in enumerate((first, second), 1)
    }
    ratios = {
        "median_based": first.summary.median / second.summary.median,
        "trimmed_mean_based": first.summary.trimmed_mean / second.summary.trimmed_mean,
    }
    return {"schema_version": 1, **sides, "speedup": {**ratios, **speedup.as_dict()}}
