"""What a reader that knows nothing of this kit, only its contract's files, gets from a run directory.

The kit before this one reads by globs and by the first columns: every `*.etdump` is a series, the
`Method::execute` of one `run_index` is an inference, `total_ms` is of one inference, `config` is a path. Here
those readings are done anew, with nothing of the kit's own code, and held against its figures.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import pytest
from recorded_runs import load

RUNTIME = {"Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "Method::init", "Program::load_method"}


@pytest.fixture(scope="module")
def run_dir(sme2_home: Path) -> Path:
    return sme2_home / "runs" / "xnnpack_fp16" / "linux"


def rows(dump: Path, ending: str) -> list[dict[str, str]]:
    with dump.with_name(f"{dump.stem}{ending}").open(newline="") as stream:
        return list(csv.DictReader(stream))


def dumps(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("**/*.etdump"))


def inferences_ms(timeline: list[dict[str, str]]) -> list[float]:
    by_run: dict[str, float] = defaultdict(float)
    for row in timeline:
        if row["name"] == "Method::execute":
            by_run[row["run_index"]] += float(row["duration_ms"])
    return list(by_run.values())


def test_every_dump_that_a_glob_finds_is_a_series_of_its_own(run_dir: Path) -> None:
    manifest = load(run_dir / "manifest.json")
    named = sorted(result["etdump"] for result in manifest["results"])
    assert [str(path.relative_to(run_dir)) for path in dumps(run_dir)] == named
    assert list(run_dir.glob("*/rounds/*")), "later rounds are kept, under another ending"
    for pattern in ("*_all_runs_timeline.csv", "*_run0_timeline.csv", "*_ops_stats.csv"):
        assert len(list(run_dir.glob(f"**/{pattern}"))) == len(manifest["results"])
    assert len(load(run_dir / "analysis_summary.json")["per_etdump"]) == len(manifest["results"])


def test_the_manifest_names_its_config_and_results(run_dir: Path) -> None:
    manifest = load(run_dir / "manifest.json")
    assert isinstance(manifest["model"], str) and isinstance(manifest["results"], list)
    config = json.loads(Path(manifest["config"]).read_text())
    named = {entry["name"] for entry in config["experiments"]}
    assert named == {result["experiment"] for result in manifest["results"]}
    assert all(entry["runner_path"] for entry in config["experiments"])
    assert manifest["executorch"]["sha"]


def test_inferences_and_categories_are_those_of_the_analysis(run_dir: Path) -> None:
    summary = {entry["etdump"]: entry for entry in load(run_dir / "analysis_summary.json")["per_etdump"]}
    for dump in dumps(run_dir):
        entry = summary[str(dump.relative_to(run_dir))]
        timeline = rows(dump, "_exec_all_runs_timeline.csv")
        taken = inferences_ms(timeline)
        assert 0 < len(taken) <= entry["runs"], "a dump is one launch of its series"
        assert sum(taken) / len(taken) == pytest.approx(entry["e2e_ms"], rel=0.05)
        first = rows(dump, "_exec_run0_timeline.csv")
        assert inferences_ms(first) == pytest.approx(taken[:1])

        stats = rows(dump, "_exec_ops_stats.csv")
        total = sum(float(row["total_ms"]) for row in stats)
        overheads = entry["framework_overhead_ms"] + entry["unattributed_ms"]
        assert total + overheads == pytest.approx(entry["e2e_ms"], abs=1e-4), "total_ms is of one inference"
        by_category: dict[str, float] = defaultdict(float)
        for row in stats:
            by_category[row["category"]] += float(row["total_ms"])
        assert dict(by_category) == pytest.approx(
            {name: ms for name, ms in entry["categories_ms"].items() if name in by_category}, abs=1e-4
        )


def test_columns_that_other_kits_have_mean_the_same_as_there(run_dir: Path) -> None:
    for dump in dumps(run_dir):
        timeline = rows(dump, "_exec_all_runs_timeline.csv")
        runs = len(inferences_ms(timeline))
        shares: dict[str, float] = {}
        operators: dict[str, float] = defaultdict(float)
        for row in timeline:
            if row["name"] == "Method::execute":
                shares[row["run_index"]] = float(row["pct_total"])
            if row["name"] not in RUNTIME:
                operators[row["type"]] += float(row["duration_ms"]) / runs
        assert list(shares.values()) == pytest.approx([100.0] * runs, abs=0.01)
        assert not any(row["model_id"] != dump.stem for row in timeline)

        stats = rows(dump, "_exec_ops_stats.csv")
        by_type: dict[str, float] = defaultdict(float)
        for row in stats:
            assert float(row["total_ms"]) == pytest.approx(int(row["count"]) * float(row["avg_ms"]), abs=1e-6)
            by_type[row["type"]] += float(row["total_ms"])
        assert dict(by_type) == pytest.approx(dict(operators), rel=0.05, abs=5e-4)
        whole = next(float(row["pct_total"]) for row in timeline if row["name"] == "Method::execute")
        assert whole == pytest.approx(100.0), "shares are of end to end"
        for row in stats:
            assert float(row["pct_total"]) == pytest.approx(100 * float(row["share"]), abs=1e-3)
