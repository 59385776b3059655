"""The files and entry points of the analysis, on a run directory and on dumps with nothing around them."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from recorded_dumps import record

from model_profiling.compat.input_files import analyse_timeline
from model_profiling.core.errors import FormatError
from model_profiling.core.records import write_record
from model_profiling.etdump import read_etdump
from model_profiling.etdump.timed import read_timed
from model_profiling.program.category import Category
from model_profiling.report.csv_files import STATS_COLUMNS, TIMELINE_COLUMNS
from model_profiling.runs import Manifest, Result, Times
from model_profiling.runs.manifest import TargetFacts
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
RUNS = 6


@pytest.fixture(scope="module")
def recorded(exported, tmp_path_factory) -> Path:
    """A run directory with two experiments, one of them in two rounds, as a pipeline leaves it."""
    art = exported("toy_cnn", "fp16")
    out = tmp_path_factory.mktemp("out_toy_cnn")
    (out / "artifacts").mkdir()
    for path in (art.pte, art.etrecord):
        shutil.copy(path, out / "artifacts")
    run_dir = out / "runs" / "linux"
    results = []
    for experiment, sme2 in (("linux_sme2_off", "off"), ("linux_sme2_on", "on")):
        stem = f"{art.pte.stem}_{experiment}_t1"
        first = record(art.pte, run_dir / experiment, stem, runs=RUNS)
        second = record(art.pte, run_dir / experiment / "rounds", f"{stem}_r1", runs=RUNS)
        named = [path.relative_to(run_dir).as_posix() for path in (first, second)]
        results.append(
            Result(
                experiment=experiment,
                threads=1,
                sme2=sme2,
                disable=("sme2",) if sme2 == "off" else (),
                etdump=named[0],
                etdump_rounds=tuple(named),
                features_present=("fp16", "dotprod"),
            )
        )
    manifest = Manifest(
        model=f"artifacts/{art.pte.name}",
        target=TargetFacts("host", "linux", Times.HARDWARE),
        results=tuple(results),
    )
    write_record(run_dir / "manifest.json", manifest)
    return run_dir


@pytest.fixture
def run_dir(recorded: Path, tmp_path: Path) -> Path:
    copied = tmp_path / "out_toy_cnn"
    shutil.copytree(recorded.parents[1], copied)
    return copied / "runs" / "linux"


@pytest.fixture(scope="module")
def analysed(recorded: Path, tmp_path_factory) -> Path:
    """The run directory with the files of its analysis, to read."""
    copied = tmp_path_factory.mktemp("analysed") / "out_toy_cnn"
    shutil.copytree(recorded.parents[1], copied)
    write_analysis(analyse(copied / "runs" / "linux"))
    return copied / "runs" / "linux"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def nanoseconds(text: str) -> int:
    whole, _, fraction = text.partition(".")
    assert len(fraction) == 6
    return int(whole + fraction)


@pytest.mark.quick
def test_analyze_writes_the_contract_and_says_where(run_dir: Path, cli) -> None:
    done = cli("analyze", run_dir)
    assert done.ok, done.stderr
    assert "Convolution" in done.stdout and "analysis_summary.json" in done.stdout
    summary = json.loads((run_dir / "analysis_summary.json").read_text())
    assert summary["schema_version"] == 1 and summary["etdump_count"] == 2
    assert summary["model"].endswith(".pte") and summary["etrecord"].endswith(".etrecord")
    assert set(summary["category_totals_ms"]) == {category.value for category in Category}
    assert summary["kernel_hints"]
    for entry in summary["per_etdump"]:
        assert set(entry) == PER_ETDUMP
        assert entry["runs"] == 2 * RUNS and entry["threads"] == 1
        parts = (
            sum(entry["categories_ms"].values()) + entry["framework_overhead_ms"] + entry["unattributed_ms"]
        )
        assert parts == pytest.approx(entry["e2e_ms"], rel=1e-12)
        assert 0 <= entry["delegate_overhead_ms"] <= entry["unattributed_ms"]
        assert len(rows_of(run_dir / entry["csv_timeline"])) == entry["rows"]
    for name in summary["csv_files"]:
        assert (run_dir / name).stat().st_size > 0
    for series, entry in zip(summary["series"], summary["per_etdump"], strict=True):
        assert len(rows_of(run_dir / entry["csv_stats"])) == len(series["operators"])
        assert series["times"] == "hardware"
        assert (series["rounds"], series["runs"], series["typical_runs"]) == (2, 2 * RUNS, RUNS)
        assert sum(series["ms"].values()) == pytest.approx(series["e2e_ms"], rel=1e-12)
        assert sum(series["share"].values()) == pytest.approx(1)
    (pair,) = summary["pairs"]
    assert pair["matched_by"] == "graph node" and "has no SME2" in pair["not_comparable"]
    assert pair["e2e"]["verdict"] == "not comparable" and summary["times"] == "hardware"
    assert {one["change"] for one in pair["operators"]} == {"same"}
    pairs_only = {"sme2-slower", "sme2-no-faster"}
    assert pairs_only.isdisjoint(finding["id"] for finding in summary["findings"]), "nothing was compared"


def test_the_timeline_holds_every_event_exactly(analysed: Path) -> None:
    dump = next((analysed / "linux_sme2_on").glob("*.etdump"))
    table = read_timed(dump).table
    path = dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv")
    header = path.read_text().splitlines()[0].split(",")
    assert header[:11] == CONTRACT_TIMELINE and tuple(header) == TIMELINE_COLUMNS
    rows = rows_of(path)
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
    assert own == whole and len(whole) == RUNS
    first = rows_of(dump.with_name(f"{dump.stem}_exec_run0_timeline.csv"))
    assert first == [row for row in rows if row["run_index"] == "0"]


def test_operator_files_carry_statistics_and_the_place_in_the_model(analysed: Path) -> None:
    folder = analysed / "linux_sme2_off"
    stats = next(folder.glob("*_exec_ops_stats.csv"))
    assert stats.read_text().splitlines()[0].split(",")[:8] == CONTRACT_STATS
    assert tuple(stats.read_text().splitlines()[0].split(",")) == STATS_COLUMNS
    details = rows_of(stats)
    for row in details:
        assert row["count"] == "1" and int(row["runs"]) <= 2 * RUNS and row["times"] == "hardware"
        assert row["total_ms"] == row["avg_ms"] == row["ms"], "total_ms is of one inference"
        assert float(row["pct_total"]) == pytest.approx(100 * float(row["share"]))
    convolution = next(row for row in details if row["category"] == "Convolution")
    assert convolution["module_path"] == "features.0" and convolution["output_shape"] == "1x112x112x32"
    assert float(convolution["gflops_per_s"]) > 0 and convolution["source_file"].endswith("model.py")
    assert [row["origin"] for row in details if row["kind"] == "transpose"] == ["lowering", "lowering"]


def test_a_bare_folder_and_a_single_dump_are_enough(recorded: Path, tmp_path: Path, sme2prof) -> None:
    dump = next((recorded / "linux_sme2_on").glob("*.etdump"))
    alone = tmp_path / "from_someone" / "run.etdump"
    alone.parent.mkdir()
    shutil.copy(dump, alone)
    assert sme2prof("analyze", alone.parent).ok
    summary = json.loads((alone.parent / "analysis_summary.json").read_text())
    assert summary["model"] is None and summary["times"] == "unknown" and summary["findings"] == []
    pte = next((recorded.parents[1] / "artifacts").glob("*.pte"))
    done = sme2prof("analyze", alone, "--model", pte, "--out", tmp_path / "elsewhere")
    assert done.ok, done.stderr
    details = rows_of(tmp_path / "elsewhere" / "run_exec_ops_stats.csv")
    assert any(row["module_path"] == "features.0" for row in details)
    shutil.copy(pte, alone.with_name("anything.pte"))
    assert analyse(alone).model == str(alone.with_name("anything.pte"))


def test_a_damaged_neighbour_program_is_a_warning_but_a_named_one_an_error(run_dir: Path, sme2prof) -> None:
    pte = next((run_dir.parents[1] / "artifacts").glob("*.pte"))
    pte.write_bytes(pte.read_bytes()[:1000])
    done = sme2prof("analyze", run_dir)
    assert done.ok and "warning: " in done.stderr and "continues without it" in done.stderr
    assert sme2prof("analyze", run_dir, "--model", pte).returncode == 2


def test_etdump_to_csv(recorded: Path, tmp_path: Path, script) -> None:
    dump = next((recorded / "linux_sme2_on").glob("*.etdump"))
    done = script("tools/etdump_to_csv.py", "--etdump", dump, "--out-dir", tmp_path, "--all-runs", "--json")
    assert done.ok, done.stderr
    rows = rows_of(tmp_path / f"{dump.stem}_exec_all_runs_timeline.csv")
    assert len(rows) == len(read_etdump(dump))
    as_json = json.loads((tmp_path / f"{dump.stem}_exec_all_runs_timeline.json").read_text())
    assert [row["name"] for row in as_json] == [row["name"] for row in rows], "a list, as the earlier kit's"
    assert sum(row["duration_ms"] for row in as_json) > 0, "of numbers"
    stats = json.loads((tmp_path / f"{dump.stem}_exec_ops_stats.json").read_text())
    assert {row["count"] for row in stats} == {1} and {row["model_id"] for row in stats} == {dump.stem}
    done = script(
        "tools/etdump_to_csv.py", "--etdump", dump, "--out-dir", tmp_path, "--run-index", 3, "--model-id", "m"
    )
    assert {row["run_index"] for row in rows_of(tmp_path / f"{dump.stem}_exec_run3_timeline.csv")} == {"3"}
    done = script("tools/etdump_to_csv.py", "--etdump", dump, "--out-dir", tmp_path, "--run-index", RUNS)
    assert done.returncode == 2 and "choose from 0 to 5" in done.stderr


def test_a_timeline_says_the_same_as_its_dump(analysed: Path) -> None:
    dump = next((analysed / "linux_sme2_on").glob("*.etdump"))
    direct = analyse(dump, model=next((analysed.parents[1] / "artifacts").glob("*.pte"))).series[0].first
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


def test_a_timeline_with_only_the_contract_columns_in_another_order_is_understood(analysed, tmp_path) -> None:
    dump = next((analysed / "linux_sme2_on").glob("*.etdump"))
    rows = rows_of(dump.with_name(f"{dump.stem}_exec_all_runs_timeline.csv"))
    rows.sort(key=lambda row: (int(row["node_id"]), int(row["run_index"])))
    plain = tmp_path / "old_all_runs_timeline.csv"
    with plain.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, CONTRACT_TIMELINE, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    read = analyse_timeline(plain)
    assert read.breakdown.closes and read.runs == RUNS
    assert read.breakdown.e2e.tolist() == analyse(dump).series[0].first.breakdown.e2e.tolist()
    assert 2 * read.breakdown.categories[Category.CONV].sum() > read.breakdown.e2e.sum()


def test_dumps_of_one_name_keep_their_own_files(recorded: Path, sme2prof, tmp_path: Path) -> None:
    dump = next(recorded.rglob("*.etdump"))
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        shutil.copy(dump, tmp_path / "in" / folder / "run.etdump")
    done = sme2prof("analyze", tmp_path / "in", "--out", tmp_path / "out")
    assert done.ok, done.stderr
    assert len(list((tmp_path / "out").rglob("run_exec_ops_stats.csv"))) == 2


def test_one_damaged_dump_of_a_folder_is_a_warning_and_a_named_one_is_refused(
    recorded: Path, sme2prof, tmp_path: Path
) -> None:
    dump = next(recorded.rglob("*.etdump"))
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
def test_a_timeline_with_nonsense_in_a_row_is_refused_by_name(column, value, analysed, tmp_path) -> None:
    rows = rows_of(next(analysed.rglob("*_all_runs_timeline.csv")))
    next(row for row in rows if row["kind"])[column] = value
    spoiled = tmp_path / "spoiled_timeline.csv"
    with spoiled.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(FormatError, match=r"spoiled_timeline\.csv"):
        analyse_timeline(spoiled)
