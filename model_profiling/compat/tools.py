"""The earlier kit's tools for single files: dumps as CSV, what takes time in them, statistics of latencies,
and which kernels ran."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling.analysis.kernels import (
    KernelUse,
    kernel_uses,
    read_kernels_csv,
    unknown_kernels,
    write_kernels_csv,
)
from model_profiling.analysis.pairing import Pairing, pair_series
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.cli.frame import output_file, output_folder, say, say_wrote, warn
from model_profiling.compat.scripts import run_tool, tool_parser
from model_profiling.compat.timelines import (
    analyse_timeline,
    check_latencies,
    model_id_of,
    read_latencies,
    why_not_compared,
)
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import speedup
from model_profiling.facts import CATEGORY_CHANGE_FACTS, OPERATOR_CHANGE_FACTS, Change, row_cells
from model_profiling.program.etrecord import read_etrecord
from model_profiling.report.breakdown import pair_table
from model_profiling.report.csv_files import csv_paths, write_rows, write_stats, write_timeline
from model_profiling.report.document import make_table, render_markdown, render_terminal
from model_profiling.report.run_report import KernelSection, evidence_of_file, kernel_document
from model_profiling.report.sections import changes_table, series_blocks
from model_profiling.runner.xnnpack_log import read_xnntrace
from model_profiling.runs import Times
from model_profiling.runs.figures import latency_warnings
from model_profiling.statistics.measure import LatencySummary, summarize
from model_profiling.workflow.analyse import analyse


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
    return run_tool(_convert, parser, argv)


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
    for path in _write_tables(options, series):
        say_wrote(path)
    if not series.times.are_latencies:
        warn(f"the times are from {series.times.origin}, so they are not latencies")


def _write_tables(options: argparse.Namespace, series: SeriesAnalysis) -> list[Path]:
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
    return written


def analyze_etdump_csv(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--timeline-csv", type=Path, nargs="+", required=True, help="a timeline CSV file")
    parser.add_argument("--compare", type=Path, nargs="+", help="a second one to compare it with")
    parser.add_argument("--name1", default="first", help="name of the first")
    parser.add_argument("--name2", default="second", help="name of the second")
    parser.add_argument("--output-dir", type=output_folder, help="folder for the summaries as CSV")
    parser.add_argument("--model-name", help="prefix of the names of written files")
    parser.add_argument("-v", "--verbose", action="store_true", help="also list the longest operators")
    return run_tool(_find_bottlenecks, parser, argv)


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
    for series, stem, model in zip(every, stems, models, strict=True):
        if not series.times.are_latencies:
            say(f"{series.name}: the machine is not recorded; times are shown as recorded")
        say(render_terminal(series_blocks(series, most=10 if options.verbose else 3)))
        if options.output_dir:
            written.append(options.output_dir / f"{stem.replace('/', '-')}{names.STATS_CSV}")
            write_stats(written[-1], series, model)
    if options.compare:
        sides_named = (options.name1, options.name2)
        label, why_not = f"{options.name2} vs {options.name1}", why_not_compared(sides[0][0], sides[1][0])
        pairing = pair_series(*every, label=label, not_comparable=why_not)
        ratio = f"{speedup(pairing.traced_ratio)} (one process each: no confidence interval)"
        say(f"\n{label}: {f'not comparable, {why_not}' if why_not else ratio}")
        say(render_terminal([pair_table(pairing, sides_named)]))
        if options.verbose:
            changed = sorted(pairing.operators, key=lambda pair: -abs(pair.delta_ms))[:10]
            say(render_terminal([changes_table(pairing, changed, sides_named)]))
        if options.output_dir:
            written += _write_changes(pairing, options.output_dir / models[0])
    for path in written:
        say_wrote(path)


def _write_changes(pairing: Pairing, stem: Path) -> list[Path]:
    """Write both sides by category and by operator, with the columns of the tables in Python and stores."""
    paths = [stem.with_name(f"{stem.name}_{name}_changes.csv") for name in ("category", "operator")]
    categories = (Change(part, pairing) for part in pairing.categories)
    operators = (Change(pair, pairing) for pair in pairing.operators)
    named = [fact.name for fact in CATEGORY_CHANGE_FACTS], [fact.name for fact in OPERATOR_CHANGE_FACTS]
    write_rows(paths[0], named[0], (row_cells(CATEGORY_CHANGE_FACTS, row) for row in categories))
    write_rows(paths[1], named[1], (row_cells(OPERATOR_CHANGE_FACTS, row) for row in operators))
    return paths


def _one(option: str, paths: list[Path]) -> Path:
    """A shell pattern may match several files, one per thread count."""
    if len(paths) > 1:
        raise InputError(f"{option} was given {len(paths)} files", f"give one of them: {paths[0]}")
    return paths[0]


def xnntrace_to_kernels(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--xnntrace", type=Path, required=True, help="the runner's log, or an Android logcat")
    parser.add_argument("--out", type=output_file, required=True, help="the kernels.csv to write")
    parser.add_argument("--model-id", help="first column of every row (default: the log's name)")
    return run_tool(_list_kernels, parser, argv)


def _list_kernels(options: argparse.Namespace) -> None:
    uses = kernel_uses(read_xnntrace(options.xnntrace, follow=True))
    write_kernels_csv(options.out, options.model_id or options.xnntrace.stem, uses)
    say(f"wrote {len(uses)} rows to {options.out}")
    for name in unknown_kernels(uses):
        warn(f"the kit cannot read the kernel name {name}")


def generate_kernel_view(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    what = "kernels.csv or log of the run with SME2"
    parser.add_argument("--sme2-on", type=Path, required=True, help=f"{what} on")
    parser.add_argument("--sme2-off", type=Path, required=True, help=f"{what} off")
    parser.add_argument("--out", type=output_file, help="file to write (default: standard output)")
    parser.add_argument(
        "--filter-op", default="", help="only kernels with this in their name or role, e.g. gemm"
    )
    parser.add_argument("--title", default="Kernel view", help="the first heading")
    return run_tool(_write_view, parser, argv)


def _write_view(options: argparse.Namespace) -> None:
    on = evidence_of_file(Series("SME2 on"), _uses_in(options.sme2_on))
    off = evidence_of_file(Series("SME2 off"), _uses_in(options.sme2_off))
    sections = (KernelSection("", on, off),)
    text = render_markdown(kernel_document(sections, title=options.title, filter_op=options.filter_op))
    if options.out is None:
        say(text.rstrip("\n"))
    else:
        files.write_text(options.out, text)
        say_wrote(options.out)


def _uses_in(path: Path) -> tuple[KernelUse, ...]:
    if path.suffix == ".csv":
        return read_kernels_csv(path, follow=True)
    return kernel_uses(read_xnntrace(path, follow=True))


def robust_latency_analysis(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument(
        "--timeline-csv", type=Path, required=True, metavar="FILE", help="a timeline CSV file"
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="a second one, the candidate")
    parser.add_argument("--name1", "--name", help="name of the first file")
    parser.add_argument("--name2", help="name of the second file")
    parser.add_argument("--output-dir", type=output_folder, help="folder for <name>_robust_stats.json")
    parser.add_argument("--verbose", action="store_true", help="also print every latency")
    return run_tool(_analyse, parser, argv)


@dataclass(frozen=True, slots=True)
class _NamedFile:
    name: str
    path: Path
    latencies: tuple[float, ...]
    summary: LatencySummary

    @classmethod
    def read(cls, path: Path, name: str | None) -> _NamedFile:
        if check_latencies(path) is Times.UNKNOWN:
            say(f"{path.name}: the machine is not recorded")
        latencies = read_latencies(path)
        return cls(name or path.stem, path, latencies, summarize(latencies))


def _analyse(options: argparse.Namespace) -> None:
    sides = [_NamedFile.read(options.timeline_csv, options.name1)]
    if options.compare:
        sides.append(_NamedFile.read(options.compare, options.name2))
    for side in sides:
        say(f"{side.name}: measured with the tracer on, which costs time")
        if options.verbose:
            say(f"{side.name}: {', '.join(f'{value:.4f}' for value in side.latencies)} ms")
    say(_table(sides))
    for side in sides:
        for warning in latency_warnings(Series(side.name), [side.latencies]):
            say(f"warning: {warning}")
    if options.compare:
        say("One process each gives no verdict; `sme2prof compare` of the two runs does.")
    if options.output_dir:
        written = options.output_dir / f"{sides[0].path.stem}_robust_stats.json"
        files.write_json(written, _statistics(sides[0]))
        say_wrote(written)


_FIELDS = ("median", "mean", "minimum", "p5", "p95", "p99", "maximum", "mad")


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
    summary = side.summary
    return {
        "schema_version": 1,
        "name": side.name,
        "source": str(side.path),
        "unit": "ms",
        "count": summary.count,
        "mean_ms": summary.mean,
        "std_dev_ms": summary.std,
        "cv_percent": 100 * summary.cv,
        "median_ms": summary.median,
        "min_ms": summary.minimum,
        "max_ms": summary.maximum,
        "end_to_end_ms": asdict(summary),
        "latencies_ms": side.latencies,
        "warnings": [asdict(warning) for warning in latency_warnings(None, [side.latencies])],
    }
