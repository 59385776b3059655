"""Statistics of end-to-end latency: centre, spread, outliers, drift, groups; and two files compared.

Takes an ETDump, a timeline CSV, a runner's result or `_robust_stats.json`, or a list of milliseconds. Writes
`<name>_robust_stats.json` beside the file. With --compare, the first file is the baseline.

Dumps and timelines were measured with the tracer on, which is said. Files of emulated runs and of runs that
trace kernels are refused: their times are not latencies.

example: python model_profiling/tools/robust_latency_analysis.py off_exec_all_runs_timeline.csv \\
           --compare on_exec_all_runs_timeline.csv --name1 SME2-off --name2 SME2-on
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model_profiling.analysis.latency_files import Latencies, check_latencies, read_latencies
from model_profiling.cli.script import run_tool, tool_parser
from model_profiling.errors import InputError
from model_profiling.files import write_json
from model_profiling.run import Run, Times
from model_profiling.statistics.latency import LatencySummary, summarize
from model_profiling.statistics.speedup import Speedup, compare_rounds, compare_separate
from model_profiling.statistics.stability import StabilityWarning, latency_warnings


def main(argv: Sequence[str] | None = None) -> int:
    return run_tool(_analyse, _parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("file", type=Path, help="where the latencies are")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="another file, the candidate")
    parser.add_argument("--name1", help="what to call the first file")
    parser.add_argument("--name2", help="what to call the second")
    parser.add_argument("--output", type=Path, help="the JSON file to write")
    parser.add_argument("--force", action="store_true", help="replace the JSON file if it exists")
    return parser


def _analyse(options: argparse.Namespace) -> int:
    ours = _latencies(options.file)
    theirs = _latencies(options.compare) if options.compare else None
    output = options.output or _beside(options.file)
    _check_free(output, force=options.force)
    names = [options.name1 or options.file.stem, options.name2 or (theirs.path.stem if theirs else "")]
    described = [
        (name, one, summarize(one.flat)) for name, one in zip(names, (ours, theirs), strict=True) if one
    ]
    warnings = {name: latency_warnings(one.rounds) for name, one, _ in described}
    speedup = _speedup(ours, theirs) if theirs else None
    for name, one, _ in described:
        if one.tracer_on:
            print(f"{name}: measured with the tracer on, which costs time")
    print(_table([(name, summary) for name, _, summary in described]))
    for name, found in warnings.items():
        for warning in found:
            print(f"warning: {name}: {warning}")
    if speedup:
        print(f"{names[1]} against {names[0]}: {speedup.verdict.value} ({speedup.reason})")
    write_json(output, _content(ours, described[0][2], warnings[names[0]], speedup, theirs))
    print(f"wrote {output}")
    return 0


def _latencies(path: Path) -> Latencies:
    times, warmup_runs = check_latencies(path)
    if times is Times.UNKNOWN:
        print(f"{path.name}: nothing says on what machine it was measured")
    return read_latencies(path, warmup_runs=warmup_runs)


def _check_free(output: Path, *, force: bool) -> None:
    if not output.exists():
        return
    run = Run.around(output)
    for result in run.results if run else ():
        if run and result.latency and (run.path / result.latency).resolve() == output.resolve():
            raise InputError(f"{output} holds the latencies of the run", "give --output")
    if not force:
        raise InputError(f"{output} exists", "give --output, or --force to replace it")


def _beside(path: Path) -> Path:
    """`<name>_robust_stats.json`; statistics of statistics are the same file."""
    stem = path.stem.removesuffix("_robust_stats")
    return path.with_name(f"{stem}_robust_stats.json")


def _speedup(baseline: Latencies, candidate: Latencies) -> Speedup:
    """Rounds are paired only where both files say they were measured in the same run."""
    if baseline.tracer_on != candidate.tracer_on:
        why = "one was measured with the tracer on, the other without"
        return compare_separate(baseline.rounds, candidate.rounds, not_comparable=why)
    runs = [found.path if found else None for found in map(Run.around, (baseline.path, candidate.path))]
    interleaved = runs[0] is not None and runs[0] == runs[1] and len(baseline.rounds) > 1
    compare = compare_rounds if interleaved else compare_separate
    return compare(baseline.rounds, candidate.rounds)


_ROWS = (
    ("runs", "count", "d"),
    ("median ms", "median", ".4f"),
    ("mean ms", "mean", ".4f"),
    ("trimmed mean ms", "trimmed_mean", ".4f"),
    ("min ms", "minimum", ".4f"),
    ("p5 ms", "p5", ".4f"),
    ("p95 ms", "p95", ".4f"),
    ("p99 ms", "p99", ".4f"),
    ("max ms", "maximum", ".4f"),
    ("MAD ms", "mad", ".4f"),
    ("CV", "cv", ".2%"),
    ("robust CV", "robust_cv", ".2%"),
)


def _table(described: Sequence[tuple[str, LatencySummary]]) -> str:
    width = max(16, *(len(name) + 2 for name, _ in described))
    lines = [f"{'':18}" + "".join(f"{name:>{width}}" for name, _ in described)]
    for title, field, form in _ROWS:
        cells = (format(getattr(summary, field), form) for _, summary in described)
        lines.append(f"{title:18}" + "".join(f"{cell:>{width}}" for cell in cells))
    lines.append(f"{'outliers':18}" + "".join(f"{len(one.outliers):>{width}}" for _, one in described))
    return "\n".join(lines)


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
        "median_ms": summary.median,
        "min_ms": summary.minimum,
        "max_ms": summary.maximum,
        "end_to_end_ms": summary.as_dict(),
        "end_to_end_rounds_ms": [list(one) for one in ours.rounds],
        "warnings": [warning.as_dict() for warning in warnings],
    }
    if speedup and theirs:
        content["comparison"] = {"candidate": str(theirs.path), **speedup.as_dict()}
    return content


if __name__ == "__main__":
    sys.exit(main())
