"""Charts of the recorded runs: the numbers of the files they name, nothing else, and drawable by Vega."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from recorded_runs import EMULATED, load

from model_profiling.config.series import Series
from model_profiling.report.charts import PARTS, VEGA_LITE, draw_svg, named
from model_profiling.report.data import ReportData
from model_profiling.report.document import Chart, charts_in
from model_profiling.report.run_charts import (
    MOST_SAMPLES,
    LatencySamples,
    categories_of,
    ladder_chart,
    latency_chart,
    latency_samples,
    longest_operators,
    thinned,
)
from model_profiling.report.run_report import run_document
from model_profiling.runs import Metrics, Run, Times
from model_profiling.statistics.measure import summarize
from model_profiling.workflow.report import gather_report

Charts = dict[str, Chart]
Rows = list[dict[str, Any]]
HOSTILE = "<script>alert(1)</script> datum['x'].y \x00\u202e ${7*7} a.b[0] " + "x" * 300


def charts_of(data: ReportData) -> Charts:
    found = list(charts_in(run_document(data)))
    assert len({chart.name for chart in found}) == len(found)
    return {chart.name: chart for chart in found}


def rows(chart: Chart, name: str = "rows") -> Rows:
    datasets: Any = chart.spec["datasets"]
    found: Rows = datasets[name]
    return found


@pytest.fixture(scope="module")
def sme2(sme2_home: Path) -> ReportData:
    return gather_report(sme2_home / "runs" / "xnnpack_fp16" / "linux")


@pytest.fixture(scope="module")
def arm(arm_home: Path) -> ReportData:
    return gather_report(arm_home / "runs" / "xnnpack_fp16" / "linux")


@pytest.fixture(scope="module")
def on_sme2(sme2: ReportData) -> Charts:
    return charts_of(sme2)


@pytest.fixture(scope="module")
def on_arm(arm: ReportData) -> Charts:
    return charts_of(arm)


def test_each_kind_of_run_has_its_charts(on_sme2: Charts, on_arm: Charts) -> None:
    assert list(on_sme2) == ["categories", "operators", "latency"]
    assert list(on_arm) == ["categories", "operators", "headroom", "latency", "threads"]
    assert not charts_of(gather_report(EMULATED)), "without times there is nothing to draw"
    for chart in (*on_sme2.values(), *on_arm.values()):
        assert chart.summary.endswith(".") and any(letter.isdigit() for letter in chart.summary)
        assert chart.source and chart.title


def test_every_chart_compiles_without_a_warning_and_is_drawn(
    on_sme2: Charts, on_arm: Charts, capfd: pytest.CaptureFixture[str]
) -> None:
    import vl_convert

    for chart in {**on_sme2, **on_arm}.values():
        vl_convert.vegalite_to_vega(dict(chart.spec), vl_version=VEGA_LITE, show_warnings=True)
        said = capfd.readouterr()
        assert not said.err and not said.out, (chart.name, said)
        svg = draw_svg(chart)
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert "NaN" not in svg and "undefined" not in svg and "Infinity" not in svg


def test_a_picture_holds_nothing_unseen(on_sme2: Charts) -> None:
    chart = on_sme2["latency"]
    named = [{**row, "_label": "a\x1b\u202eb"} for row in rows(chart)]
    hostile = replace(chart, title="t\u202e", spec={**chart.spec, "datasets": {"rows": named, "samples": []}})
    svg = draw_svg(hostile)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "\\u001b" in svg and "\\u202e" in svg and not {"\x1b", "\u202e"} & set(svg)


def test_latencies_are_those_of_the_metrics(on_sme2: Charts, sme2: ReportData) -> None:
    metrics = load(sme2.run.path / "metrics.json")
    shown = rows(on_sme2["latency"])
    assert len(shown) == len(metrics["latencies"])
    for row, found in zip(shown, metrics["latencies"], strict=True):
        for key in ("median", "p5", "p95"):
            assert row[key] == pytest.approx(found["end_to_end_ms"][key], abs=1e-5)


def test_samples_are_measured_ones_of_every_launch(on_sme2: Charts, sme2: ReportData) -> None:
    shown = rows(on_sme2["latency"], "samples")
    told = load(sme2.run.path / "metrics.json")["latencies"]
    every = sum(found["end_to_end_ms"]["count"] for found in told)
    assert len(shown) <= MOST_SAMPLES
    assert f"{len(shown)} of {every:,} inferences" in json.dumps(on_sme2["latency"].spec["layer"])
    for found in sme2.run.series:
        kept = sme2.run.robust_stats(found)
        assert kept is not None
        for number, values in enumerate(kept.end_to_end_rounds_ms, start=1):
            label = found.spoken(sme2.run.series)
            ours = [row["ms"] for row in shown if (row["series"], row["launch"]) == (label, number)]
            known = [round(value, 5) for value in values]
            assert set(ours) <= set(known) and min(known) in ours and max(known) in ours


def test_stacks_add_up_to_the_analysis_on_both_sides(on_sme2: Charts, sme2: ReportData) -> None:
    stacks = {
        str(Series(found["experiment"], found["threads"])): found
        for found in load(sme2.run.path / "analysis_summary.json")["series"]
    }
    (pair,) = sme2.pairs
    segments = rows(on_sme2["categories"], "segments")
    for side, series in (("SME2 off", pair.pair.baseline), ("SME2 on", pair.pair.candidate)):
        ours = [row for row in segments if row["side"] == side]
        known = stacks[str(series)]
        assert [row["category"] for row in ours] == list(known["ms"]) == list(PARTS)
        for row in ours:
            assert row["ms"] == pytest.approx(known["ms"][row["category"]], abs=1.1e-3)
            assert row["share"] == pytest.approx(100 * known["share"][row["category"]], abs=0.11)
        slower = stacks[str(pair.pair.baseline)]["e2e_ms"]
        assert ours[-1]["_end"] == pytest.approx(100 * known["e2e_ms"] / slower, abs=0.1)
        (largest,) = [row for row in ours if row["largest"]]
        assert largest["category"] == max(known["share"], key=lambda part: known["share"][part])


def test_operators_before_and_after_are_those_of_the_analysis(on_sme2: Charts, sme2: ReportData) -> None:
    (pair,) = load(sme2.run.path / "analysis_summary.json")["pairs"]
    known = sorted(pair["operators"], key=lambda found: -max(found["baseline_ms"], found["candidate_ms"]))
    shown = rows(on_sme2["operators"])
    assert len(shown) >= 8
    for row, found in zip(shown, known, strict=False):
        assert (row["operator"], row["category"]) == (found["operator"], found["category"])
        assert row["before"] == pytest.approx(found["baseline_ms"], abs=1.1e-3)
        assert row["after"] == pytest.approx(found["candidate_ms"], abs=1.1e-3)


def test_the_projection_is_that_of_the_analysis_and_says_what_it_is(on_arm: Charts, arm: ReportData) -> None:
    chart = on_arm["headroom"]
    known = load(arm.run.path / "analysis_summary.json")["sme2_headroom"]
    measured, projected = rows(chart, "measured")[0], rows(chart, "projected")[0]
    assert projected["from"] == pytest.approx(measured["ms"] / known["high"], rel=1e-3)
    assert projected["to"] == pytest.approx(measured["ms"] / known["low"], rel=1e-3)
    assert projected["least"] == pytest.approx(measured["ms"] / known["ceiling"], rel=1e-3)
    assert "projection" in chart.title and "not measured" in chart.summary
    assert sum("PROJECTION" in row["_label"] for row in rows(chart)) == len(rows(chart, "projected"))


def test_one_series_alone_has_its_stack_and_its_longest_operators(arm: ReportData) -> None:
    charts = charts_of(replace(arm, pairs=()))
    assert {"categories", "operators"} <= set(charts)
    known = load(arm.run.path / "analysis_summary.json")["series"][0]
    shown = {row["category"]: row["ms"] for row in rows(charts["categories"], "segments")}
    assert shown == pytest.approx(known["ms"], abs=1.1e-3)
    longest = rows(charts["operators"])
    assert [row["value"] for row in longest] == sorted((row["value"] for row in longest), reverse=True)


def test_times_of_an_unknown_machine_are_drawn_as_recorded(arm: ReportData) -> None:
    shown = [replace(found, latency=None, times=Times.UNKNOWN) for found in arm.experiments]
    (first, *_) = known = latency_samples(replace(arm, experiments=tuple(shown)))
    dumps = arm.experiments[0].dumps
    assert dumps is not None and len(known) == 2
    assert first.summary == dumps.latency and sum(map(len, first.rounds)) == dumps.runs


def test_a_ladder_shows_every_rung_and_what_it_buys(sme2: ReportData) -> None:
    on, off = sme2.experiments
    lowest = replace(off, series=Series("upto_neon", 1))
    rungs = [
        replace(found, result=replace(found.result, disable=gone))
        for found, gone in ((on, ()), (off, ("sme2",)), (lowest, ("sme2", "sme", "dotprod")))
        if found.result
    ]
    chart = ladder_chart(replace(sme2, experiments=tuple(rungs)))
    assert chart is not None and ladder_chart(sme2) is None
    shown, ratio = rows(chart), sme2.pairs[0].speedup.ratio
    medians = [found.summary.median for found in rungs if found.summary]
    assert [row["value"] for row in shown] == pytest.approx(medians, abs=1e-5) and len(shown) == 3
    assert [f"{ratio:.2f}x the rung below" in row["_label"] for row in shown] == [True, False, False]
    emulated = Run(sme2.run.path, metrics=Metrics(times=Times.EMULATED))
    assert ladder_chart(replace(sme2, experiments=tuple(rungs), run=emulated)) is None, "no times, no chart"
    assert "undefined" not in draw_svg(chart)


def test_many_samples_are_thinned_evenly_and_the_chart_says_so() -> None:
    values = [1 + number % 97 / 100 for number in range(9_000)]
    launches = [values[at : at + 90] for at in range(0, 9_000, 90)]
    many = LatencySamples("a, 1 thread", summarize(values), launches, "launch")
    chart = latency_chart([many], "t")
    assert chart is not None and len(json.dumps(chart.spec)) < 200_000
    assert "of 9,000 inferences" in json.dumps(chart.spec)
    assert thinned(range(1_000), 5) == [0, 250, 500, 749, 999]
    assert thinned(range(3), 5) == [0, 1, 2]


def test_a_straggler_stands_at_the_edge_and_squeezes_nobody() -> None:
    values = [1.0 + number / 1000 for number in range(50)] + [50.0]
    chart = latency_chart([LatencySamples("a, 1 thread", summarize(values), [values], "round")], "t")
    assert chart is not None
    slowest = max(rows(chart, "samples"), key=lambda row: row["ms"])
    (x,) = {json.dumps(each["encoding"]["x"]["scale"]) for each in chart.spec["layer"][1:2]}  # type: ignore[index]
    scale = json.loads(x)
    assert slowest["ms"] == 50.0 and scale["domain"][1] < 2 and scale["clamp"]


def leaves(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield path, key
            yield from leaves(inside, (*path, key))
    elif isinstance(value, list):
        for inside in value:
            yield from leaves(inside, path)
    else:
        yield path, value


def test_names_from_files_stay_data(arm: ReportData) -> None:
    shown = named(HOSTILE)
    assert len(shown) <= 90 and shown.isprintable() and "\ufffd" in shown
    assert arm.headline is not None and arm.headline.dumps is not None
    series = arm.headline.dumps
    spoilt = replace(series, operators=tuple(replace(each, name=HOSTILE) for each in series.operators))
    samples = [replace(found, label=named(HOSTILE)) for found in latency_samples(arm)]
    charts = (
        longest_operators(spoilt, spoilt.operators, "operators"),
        latency_chart(samples, "t"),
        categories_of(spoilt, "categories"),
    )
    for chart in charts:
        assert chart is not None
        for path, value in leaves(chart.spec):
            if isinstance(value, str) and "script" in value:
                assert path[0] == "datasets" or path[-1] == "domain", path
        drawn = ElementTree.fromstring(draw_svg(chart))
        assert not [element for element in drawn.iter() if element.tag.endswith(("script", "image", "}a"))]
