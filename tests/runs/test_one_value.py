"""Every number has one value: every file of a run, its store and its tables in Python state the same times
and shares. Timelines are left out: they are the raw events of a dump. Pages: see `browser/shown_numbers.py`.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import ARM, SME2, X86_64, csv_rows, load

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.report.tables import AnalysedRun
from model_profiling.runs import Run
from model_profiling.store.labels import Labels
from model_profiling.store.run_rows import rows_of_run, run_row
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.report import write_report

E2E = "end to end"
MEDIAN, TRACED = "median without the tracer, ms", "traced mean, ms"
Subject = tuple[Series, str, str]
"""Of which series; which operator (its call, position and name), category or end to end; which quantity."""
Statement = tuple[Subject, float, str]
"""With the value, and where it is stated."""
FIGURES = ("ms", "share", "median_ms", "p10_ms", "p90_ms")


def series_of(entry: Any) -> Series:
    return Series(entry["experiment"], entry["threads"])


def operator(entry: Any) -> str:
    return f"{entry['call']}.{entry['position']} {entry['name']}"


def of_operators(series: Series, rows: Any, source: str) -> Iterator[Statement]:
    for row in rows:
        for figure in FIGURES:
            yield (series, operator(row), figure), float(row[figure]), source


def of_csv(run_dir: Path) -> Iterator[Statement]:
    for entry in load(run_dir / names.ANALYSIS)["per_etdump"]:
        series, path = series_of(entry), run_dir / entry["csv_stats"]
        rows = csv_rows(path)
        yield from of_operators(series, rows, path.name)
        for row in rows:
            for column in ("total_ms", "avg_ms"):
                yield (series, operator(row), "ms"), float(row[column]), f"{path.name}, {column}"
            yield (series, operator(row), "share"), float(row["pct_total"]) / 100, f"{path.name}, pct_total"


def of_summary(run_dir: Path) -> Iterator[Statement]:
    summary = load(run_dir / names.ANALYSIS)
    for entry in summary["per_etdump"]:
        series, source = series_of(entry), "per_etdump"
        around = {"Framework overhead": "framework_overhead_ms", "Unattributed": "unattributed_ms"}
        parts = entry["categories_ms"] | {name: entry[key] for name, key in around.items()}
        yield from (((series, part, "ms"), ms, source) for part, ms in parts.items())
        yield (series, E2E, TRACED), entry["e2e_ms"], source
    named: dict[str, Series] = {}
    for entry in summary["series"]:
        series, source = series_of(entry), "series"
        named[str(series)] = series
        for figure in ("ms", "share"):
            yield from (((series, part, figure), value, source) for part, value in entry[figure].items())
        yield (series, E2E, TRACED), entry["e2e_ms"], source
        yield (series, E2E, MEDIAN), entry["untraced_ms"], source
        yield from of_operators(series, entry["operators"], source)
    for pair in summary["pairs"]:
        for side in ("baseline", "candidate"):
            series = series_of(pair[side])
            for row in pair.get("categories", ()):
                for figure in ("ms", "share"):
                    subject = (series, row["category"], figure)
                    yield subject, row[f"{side}_{figure}"], f"pairs, {pair['label']}"
    operators = {str(series_of(each)): each["operators"] for each in summary["series"]}
    for finding in summary["findings"]:
        for row in finding["evidence"].get("operators", ()):
            there, sought = operators.get(finding["subject"], ()), (row["operator"], row["module"])
            alike = [each for each in there if (each["name"], each["module_path"]) == sought]
            if len(alike) == 1 and row["ms"] is not None and row.get("operator_count", 1) == 1:
                key = operator(alike[0])
                yield (named[finding["subject"]], key, "ms"), row["ms"], f"findings, {finding['id']}"
                yield (named[finding["subject"]], key, "share"), row["share"], f"findings, {finding['id']}"
    for entry in (summary["sme2_headroom"] or {}).get("per_series", ()):
        series, part = series_of(entry), entry["bottleneck_before"]
        yield (series, E2E, MEDIAN), entry["latency_ms"], "sme2_headroom"
        yield (series, part["category"], "share"), part["share"], "sme2_headroom"
    totals = summary["category_totals_ms"]
    summed = {part: sum(each["ms"][part] for each in summary["series"]) for part in totals}
    assert totals == pytest.approx(summed, rel=1e-9)


def of_latencies(run_dir: Path) -> Iterator[Statement]:
    """`metrics.json` and the pipeline's summary, and every other file with the latencies of a series."""
    for path in (run_dir / names.METRICS, *run_dir.glob("*_pipeline_summary.json")):
        for entry in load(path)["latencies"]:
            yield (series_of(entry), E2E, MEDIAN), entry["end_to_end_ms"]["median"], path.name
            yield (series_of(entry), E2E, "mean"), entry["end_to_end_ms"]["mean"], path.name
    run = Run.open(run_dir)
    for series in run.series:
        stats = run.robust_stats(series)
        assert stats is not None and stats.end_to_end_ms is not None
        yield (series, E2E, MEDIAN), stats.end_to_end_ms.median, "robust_stats"
        yield (series, E2E, "mean"), stats.end_to_end_ms.mean, "robust_stats"


def of_python(run: AnalysedRun) -> Iterator[Statement]:
    for row in run.categories:
        for figure in ("ms", "share"):
            yield (series_of(row), str(row["category"]), figure), float(row[figure] or 0), "run.categories"
    for row in run.operators:
        yield from of_operators(series_of(row), [row], "run.operators")
    for row in run.latencies:
        yield (series_of(row), E2E, MEDIAN), float(row["median_ms"] or 0), "run.latencies"


def of_store(run_dir: Path) -> Iterator[Statement]:
    run = Run.open(run_dir)
    rows = rows_of_run(run, run_row(run, Labels()))
    for row in rows["operators"]:
        yield from of_operators(series_of(row), [row], "store: operators")
    for row in rows["experiments"]:
        yield (series_of(row), E2E, MEDIAN), row["median_ms"], "store: experiments"


@pytest.fixture(scope="module", params=[ARM, SME2, X86_64], ids=lambda path: str(path.name))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run with every file written by today's code."""
    run_dir = tmp_path_factory.mktemp("one_value") / "linux"
    shutil.copytree(request.param, run_dir)
    write_analysis(analyse(run_dir))
    write_report(run_dir)
    return run_dir


def test_no_two_files_give_one_number_two_values(written: Path) -> None:
    values: dict[Subject, dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    files = (of_summary, of_csv, of_latencies, of_store)
    stated = [each for statements in files for each in statements(written)]
    for subject, value, source in (*stated, *of_python(analyse(written))):
        known = values[subject]
        same = next((each for each in known if each == pytest.approx(value, rel=1e-9, abs=1e-12)), value)
        known[same].append(source)
    wrong = {subject: dict(stated) for subject, stated in values.items() if len(stated) > 1}
    assert not wrong
    operators = {subject[:2] for subject in values if subject[1][0].isdigit()}
    assert len(operators) == 11 * len(load(written / names.ANALYSIS)["series"])
    assert all(len(values[subject[0], subject[1], "ms"]) == 1 for subject in operators)
