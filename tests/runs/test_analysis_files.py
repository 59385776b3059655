"""The files of the analysis, of a recorded run and of its dumps with nothing around them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from recorded_runs import PROGRAM, RUNS, SME2, TURN, csv_rows, load

from model_profiling.compat.timelines import analyse_timeline
from model_profiling.core.errors import FormatError
from model_profiling.etdump import read_etdump
from model_profiling.etdump.reader import read_timed
from model_profiling.program.category import Category
from model_profiling.report.csv_files import STATS_COLUMNS, TIMELINE_COLUMNS
from model_profiling.runs import Times
from model_profiling.tools import etdump_to_csv
from model_profiling.workflow.analyse import analyse, write_analysis

CONTRACT_TIMELINE = [
    "model_id", "name", "type", "delegate_backend", "start_us", "end_us", "duration_ms", "pct_total",
    "node_id", "run_index", "block",
]  # fmt: skip
CONTRACT_STATS = ["model_id", "name", "type", "delegate_backend", "count", "total_ms", "avg_ms", "pct_total"]
PER_ETDUMP = {
    "etdump", "experiment", "threads", "categories_ms", "framework_overhead_ms", "delegate_overhead_ms",
    "unattributed_ms", "e2e_ms", "runs", "rows", "csv_timeline", "csv_stats",
}  # fmt: skip


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Alone, so with the first inference of each turn, too; beside it is what its analysis wrote."""
    (found,) = SME2.glob("linux_sme2_on/*_t1.etdump")
    alone = Path(shutil.copy(found, tmp_path_factory.mktemp("alone")))
    write_analysis(analyse(alone, model=PROGRAM, times=Times.HARDWARE))
    return alone


def nanoseconds(text: str) -> int:
    whole, _, fraction = text.partition(".")
    assert len(fraction) == 6
    return int(whole + fraction)


def test_analyze_writes_the_contract_and_says_where(sme2_run: Path, sme2prof) -> None:
    (sme2_run / "analysis_summary.json").unlink()
    done = sme2prof("analyze", sme2_run)
    assert done.ok, done.stderr
    assert "Convolution" in done.stdout and "analysis_summary.json" in done.stdout
    summary = load(sme2_run / "analysis_summary.json")
    assert summary["schema_version"] == 1 and summary["etdump_count"] == 2
    assert summary["model"].endswith(".pte") and summary["etrecord"].endswith(".etrecord")
    assert set(summary["category_totals_ms"]) == {category.value for category in Category}
    assert summary["kernel_hints"]
    for name in summary["csv_files"]:
        assert (sme2_run / name).stat().st_size > 0
    for series, entry in zip(summary["series"], summary["per_etdump"], strict=True):
        assert set(entry) == PER_ETDUMP
        parts = (
            sum(entry["categories_ms"].values()) + entry["framework_overhead_ms"] + entry["unattributed_ms"]
        )
        assert parts == pytest.approx(entry["e2e_ms"], rel=1e-12)
        assert 0 <= entry["delegate_overhead_ms"] <= entry["unattributed_ms"]
        assert len(csv_rows(sme2_run / entry["csv_timeline"])) == entry["rows"]
        assert len(csv_rows(sme2_run / entry["csv_stats"])) == len(series["operators"])
        assert series["times"] == "hardware" and (series["rounds"], series["runs"]) == (6, entry["runs"])
        assert sum(series["ms"].values()) == pytest.approx(series["e2e_ms"], rel=1e-12)
        assert sum(series["share"].values()) == pytest.approx(1)
    assert summary["times"] == "hardware" and summary["pairs"][0]["matched_by"] == "graph node"


def test_the_timeline_holds_every_event_exactly(dump: Path) -> None:
    table = read_timed(dump).table
    path = dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv")
    header = path.read_text().splitlines()[0].split(",")
    assert header[:11] == CONTRACT_TIMELINE and tuple(header) == TIMELINE_COLUMNS
    rows = csv_rows(path)
    own_runs = table.blocks.name[table.block] == table.name_index("Execute")
    assert [row["name"] for row in rows] == table.text(table.name[own_runs]).tolist()
    assert [nanoseconds(row["duration_ms"]) for row in rows] == table.duration_ns[own_runs].tolist()
    assert [int(row["start_us"].replace(".", "")) for row in rows] == table.start_ns[own_runs].tolist()
    assert [int(row["end_us"].replace(".", "")) for row in rows] == table.end_ns[own_runs].tolist()
    own: dict[str, int] = defaultdict(int)
    whole: dict[str, int] = {}
    for row in rows:
        own[row["run_index"]] += nanoseconds(row["self_ms"])
        if row["name"] == "Method::execute":
            whole[row["run_index"]] = nanoseconds(row["duration_ms"])
            assert row["pct_total"] == "100.0000"
    assert own == whole and len(whole) == RUNS * TURN
    first = csv_rows(dump.with_name(f"{dump.stem}_exec_run0_timeline.csv"))
    assert first == [row for row in rows if row["run_index"] == "0"]


def test_operator_files_carry_statistics_and_the_place_in_the_model(dump: Path) -> None:
    stats = dump.with_name(f"{dump.stem}_exec_ops_stats.csv")
    header = stats.read_text().splitlines()[0].split(",")
    assert header[:8] == CONTRACT_STATS and tuple(header) == STATS_COLUMNS
    details = csv_rows(stats)
    for row in details:
        assert row["count"] == "1" and row["times"] == "hardware"
        assert row["total_ms"] == row["avg_ms"] == row["ms"], "total_ms is of one inference"
        assert float(row["pct_total"]) == pytest.approx(100 * float(row["share"]))
    convolution = next(row for row in details if row["category"] == "Convolution")
    assert convolution["module_path"] == "features.0" and convolution["output_shape"] == "1x112x112x16"
    assert float(convolution["gflops_per_s"]) > 0 and convolution["source_file"].endswith("small_cnn.py")
    assert "lowering" in {row["origin"] for row in details if row["kind"] == "transpose"}


def test_a_bare_folder_and_a_single_dump_are_enough(dump: Path, tmp_path: Path, sme2prof) -> None:
    alone = tmp_path / "from_someone" / "run.etdump"
    alone.parent.mkdir()
    shutil.copy(dump, alone)
    assert sme2prof("analyze", alone.parent).ok
    summary = json.loads((alone.parent / "analysis_summary.json").read_text())
    assert summary["model"] is None and summary["times"] == "unknown"
    assert not [finding for finding in summary["findings"] if finding["max_gain_pct"] is not None]
    done = sme2prof("analyze", alone, "--model", PROGRAM, "--out", tmp_path / "elsewhere")
    assert done.ok, done.stderr
    details = csv_rows(tmp_path / "elsewhere" / "run_exec_ops_stats.csv")
    assert any(row["module_path"] == "features.0" for row in details)
    shutil.copy(PROGRAM, alone.with_name("anything.pte"))
    assert analyse(alone).model == str(alone.with_name("anything.pte"))


def test_a_damaged_neighbour_program_is_a_warning_but_a_named_one_an_error(sme2_run: Path, sme2prof) -> None:
    (sme2_run / "program_graph.json").unlink()
    pte = next((sme2_run.parents[2] / "artifacts").glob("*fp16.pte"))
    pte.write_bytes(pte.read_bytes()[:1000])
    done = sme2prof("analyze", sme2_run)
    assert done.ok and "warning: " in done.stderr and "continues without it" in done.stderr
    assert sme2prof("analyze", sme2_run, "--model", pte).returncode == 2


def test_etdump_to_csv(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--etdump", str(dump), "--out-dir", str(tmp_path)]
    assert etdump_to_csv.main([*words, "--all-runs"]) == 0
    rows = csv_rows(tmp_path / f"{dump.stem}_exec_all_runs_timeline.csv")
    assert len(rows) == len(read_etdump(dump))
    stats = csv_rows(tmp_path / f"{dump.stem}_exec_ops_stats.csv")
    assert {row["count"] for row in stats} == {"1"} and {row["model_id"] for row in stats} == {dump.stem}
    assert etdump_to_csv.main([*words, "--run-index", "3"]) == 0
    assert {row["run_index"] for row in csv_rows(tmp_path / f"{dump.stem}_exec_run3_timeline.csv")} == {"3"}
    assert etdump_to_csv.main([*words, "--run-index", "99"]) == 2
    assert f"choose from 0 to {RUNS * TURN - 1}" in capsys.readouterr().err


def test_a_timeline_says_the_same_as_its_dump(dump: Path) -> None:
    direct = analyse(dump, model=PROGRAM).series[0].first
    read = analyse_timeline(dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv"))
    assert read.breakdown.closes
    assert read.breakdown.e2e.tolist() == direct.breakdown.e2e.tolist()
    assert {name: ns.tolist() for name, ns in read.breakdown.categories.items()} == {
        name: ns.tolist() for name, ns in direct.breakdown.categories.items()
    }
    assert read.breakdown.framework.tolist() == direct.breakdown.framework.tolist()
    assert read.breakdown.tracing.tolist() == direct.breakdown.tracing.tolist()
    assert read.clock == direct.clock
    assert [(one.name, one.kind, one.times) for one in read.operators] == [
        (one.name, one.kind, one.times) for one in direct.operators
    ]


def test_a_timeline_with_only_the_contract_columns_in_another_order_is_understood(dump, tmp_path) -> None:
    rows = csv_rows(dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv"))
    rows.sort(key=lambda row: (int(row["node_id"]), int(row["run_index"])))
    plain = tmp_path / "old_all_runs_timeline.csv"
    with plain.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, CONTRACT_TIMELINE, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    read = analyse_timeline(plain)
    assert read.breakdown.closes
    assert read.breakdown.e2e.tolist() == analyse(dump).series[0].first.breakdown.e2e.tolist()
    assert 2 * read.breakdown.categories[Category.CONV].sum() > read.breakdown.e2e.sum()


def test_dumps_of_one_name_keep_their_own_files(dump: Path, sme2prof, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        shutil.copy(dump, tmp_path / "in" / folder / "run.etdump")
    done = sme2prof("analyze", tmp_path / "in", "--out", tmp_path / "out")
    assert done.ok, done.stderr
    assert len(list((tmp_path / "out").rglob("run_exec_ops_stats.csv"))) == 2


def test_one_damaged_dump_of_a_folder_is_a_warning_and_a_named_one_is_refused(
    dump: Path, sme2prof, tmp_path: Path
) -> None:
    shutil.copy(dump, tmp_path / "good.etdump")
    (tmp_path / "bad.etdump").write_bytes(dump.read_bytes()[:100])
    (tmp_path / "empty.etdump").touch()
    done = sme2prof("analyze", tmp_path)
    assert done.ok and "bad.etdump" in done.stderr and "the others are analysed" in done.stderr
    assert re.search(r"empty\.etdump is empty; .*log.*event tracer.*the others are analysed", done.stderr)
    for name in ("bad", "empty"):
        refused = sme2prof("analyze", tmp_path / f"{name}.etdump")
        assert refused.returncode == 2
    assert "log" in refused.stderr and "event tracer" in refused.stderr


@pytest.mark.parametrize(
    "column, value",
    [("start_us", "inf"), ("start_us", "1e30"), ("run_index", str(2**40)), ("category", "Magic")],
)
def test_a_timeline_with_nonsense_in_a_row_is_refused_by_name(column, value, dump, tmp_path) -> None:
    rows = csv_rows(dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv"))
    next(row for row in rows if row["kind"])[column] = value
    spoiled = tmp_path / "spoiled_timeline.csv"
    with spoiled.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(FormatError, match=r"spoiled_timeline\.csv"):
        analyse_timeline(spoiled)


# What a reader gets that knows only the contract's files: for the kit before this one every `*.etdump` is a
# series, the `Method::execute` of one `run_index` is an inference, and `total_ms` is of one inference.


def inferences_ms(timeline: list[dict[str, str]]) -> list[float]:
    by_run: dict[str, float] = defaultdict(float)
    for row in timeline:
        if row["name"] == "Method::execute":
            by_run[row["run_index"]] += float(row["duration_ms"])
    return list(by_run.values())


def test_every_dump_that_a_glob_finds_is_a_series_and_the_manifest_names_its_config(sme2_run: Path) -> None:
    manifest = load(sme2_run / "manifest.json")
    results = manifest["results"]
    dumps = [str(path.relative_to(sme2_run)) for path in sorted(sme2_run.glob("**/*.etdump"))]
    assert dumps == sorted(result["etdump"] for result in results)
    assert list(sme2_run.glob("*/rounds/*")), "later rounds are kept, under another ending"
    for pattern in ("*_all_runs_timeline.csv", "*_run0_timeline.csv", "*_ops_stats.csv"):
        assert len(list(sme2_run.glob(f"**/{pattern}"))) == len(results)
    assert len(load(sme2_run / "analysis_summary.json")["per_etdump"]) == len(results)
    config = load(Path(manifest["config"]))
    assert {entry["name"] for entry in config["experiments"]} == {result["experiment"] for result in results}
    assert all(entry["runner_path"] for entry in config["experiments"])
    assert isinstance(manifest["model"], str) and manifest["executorch"]["sha"]


def test_inferences_and_categories_are_those_of_the_analysis(sme2_run: Path) -> None:
    for entry in load(sme2_run / "analysis_summary.json")["per_etdump"]:
        dump = sme2_run / entry["etdump"]
        taken = inferences_ms(csv_rows(dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv")))
        assert 0 < len(taken) <= entry["runs"], "a dump is one launch of its series"
        assert sum(taken) / len(taken) == pytest.approx(entry["e2e_ms"], rel=0.05)
        first = csv_rows(dump.with_name(f"{dump.stem}_exec_run0_timeline.csv"))
        assert inferences_ms(first) == pytest.approx(taken[:1])
        by_category: dict[str, float] = defaultdict(float)
        for row in csv_rows(dump.with_name(f"{dump.stem}_exec_ops_stats.csv")):
            by_category[row["category"]] += float(row["total_ms"])
        overheads = entry["framework_overhead_ms"] + entry["unattributed_ms"]
        assert sum(by_category.values()) + overheads == pytest.approx(entry["e2e_ms"], abs=1e-4)
        known = {name: ms for name, ms in entry["categories_ms"].items() if name in by_category}
        assert dict(by_category) == pytest.approx(known, abs=1e-4)
