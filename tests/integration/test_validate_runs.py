"""`sme2prof validate`: a real run passes, and every promise broken on purpose is found and named."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured_runs import copied, edit, load, pristine
from recorded_dumps import record

from model_profiling.etdump import read_etdump
from model_profiling.statistics.latency import summarize
from model_profiling.validation.validate import validate

CHECKS = [
    "manifest",
    "JSON files",
    "state",
    "files",
    "program",
    "same program",
    "latencies",
    "comparisons",
    "no latency",
    "kernels",
    "outputs",
    "dumps",
    "closure",
    "analysis",
    "CSV files",
]


@pytest.fixture(scope="session")
def home(tmp_path_factory, exported) -> Path:
    return pristine(tmp_path_factory, exported)


def failed(run_dir: Path) -> dict[str, str]:
    return {check.name: check.found for check in validate(run_dir).checks if check.status == "fail"}


def only(run_dir: Path, pattern: str) -> Path:
    return sorted(run_dir.rglob(pattern))[0]


@pytest.mark.parametrize(
    ("platform", "skipped"),
    [("linux", {"no latency"}), ("emulated", {"latencies", "comparisons"})],
    ids=["host", "emulated"],
)
def test_a_real_run_is_valid(home: Path, tmp_path: Path, platform: str, skipped: set[str]) -> None:
    run_dir = copied(home, tmp_path, emulated=platform == "emulated") / "runs" / platform
    validation = validate(run_dir)
    assert validation.ok, validation.as_text()
    assert [check.name for check in validation.checks] == CHECKS
    assert {check.name for check in validation.checks if check.status == "skipped"} == skipped


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda run_dir: edit(run_dir / "manifest.json", change)


def in_json(pattern: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda run_dir: edit(only(run_dir, pattern), change)


def in_bytes(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(run_dir: Path) -> None:
        path = only(run_dir, pattern)
        path.write_bytes(change(path.read_bytes()))

    return apply


def removed(pattern: str) -> Callable[[Path], None]:
    return lambda run_dir: only(run_dir, pattern).unlink()


def other_program(run_dir: Path) -> None:
    with (run_dir.parent.parent / "artifacts" / "toy_cnn_xnnpack_fp32.pte").open("ab") as stream:
        stream.write(b"\0")


def doubled_round(stats: dict[str, Any]) -> None:
    stats["end_to_end_rounds_ms"][0] = [2 * value for value in stats["end_to_end_rounds_ms"][0]]


def consistently_slower(run_dir: Path) -> None:
    """Latencies and every figure made from them doubled; only the journal still knows."""
    path = only(run_dir, "*_robust_stats.json")

    def double(stats: dict[str, Any]) -> None:
        rounds = [[2 * value for value in one] for one in stats["end_to_end_rounds_ms"]]
        stats["end_to_end_rounds_ms"] = rounds
        stats["end_to_end_ms"] = summarize([value for one in rounds for value in one]).as_dict()

    edit(path, double)
    stats = load(path)
    edit(
        run_dir / "metrics.json",
        lambda metrics: [
            entry.update(end_to_end_ms=stats["end_to_end_ms"])
            for entry in metrics["latencies"]
            if (entry["experiment"], entry["threads"]) == (stats["experiment"], stats["threads"])
        ],
    )


def wrong_verdict(metrics: dict[str, Any]) -> None:
    comparison = next(one for one in metrics["comparisons"] if one["ratio"] is not None)
    comparison.update(verdict="faster", ratio=1.01, low=0.9, high=1.2)


def backwards_time(run_dir: Path) -> None:
    """Make the first inference of a dump end before it began."""
    path = only(run_dir, "*_t1.etdump")
    table = read_etdump(path)
    event = int((table.name == table.name_index("Method::execute")).nonzero()[0][0])
    end, start = int(table.end_ns[event]), int(table.start_ns[event])
    content = path.read_bytes()
    assert content.count(struct.pack("<Q", end)) == 1
    path.write_bytes(content.replace(struct.pack("<Q", end), struct.pack("<Q", start)))


BROKEN = {
    "a manifest cut short": (in_bytes("manifest.json", lambda raw: raw[:-9]), "manifest", "not JSON"),
    "a manifest of another format": (
        in_manifest(lambda manifest: manifest.update(schema_version=7)),
        "manifest",
        "schema_version",
    ),
    "a run that was interrupted": (
        in_manifest(lambda manifest: manifest.update(state="interrupted")),
        "state",
        "interrupted",
    ),
    "an experiment that failed": (
        in_manifest(lambda manifest: manifest["results"][1].update(state="failed", problem="crashed")),
        "state",
        "crashed",
    ),
    "half-written files": (
        lambda run_dir: (run_dir / ".report.md.x.part").write_text(""),
        "state",
        "half-written",
    ),
    "a missing log": (removed("*_t1.log"), "files", "_t1.log"),
    "a missing dump": (removed("*_r3.etdump"), "files", "_r3.etdump"),
    "a missing output": (removed("*_output0.bin"), "outputs", "_output0.bin"),
    "missing metrics": (removed("metrics.json"), "files", "metrics.json"),
    "a program exported again": (other_program, "program", "is not what was measured"),
    "a dump cut short": (in_bytes("*_r2.etdump", lambda raw: raw[: len(raw) // 2]), "dumps", "_r2.etdump"),
    "an empty dump": (in_bytes("*_t2.etdump", lambda raw: raw[:0]), "dumps", "_t2.etdump"),
    "runs that are missing": (
        in_manifest(lambda manifest: manifest["results"][0].update(runs=6)),
        "dumps",
        "holds 5 runs, the manifest says 6",
    ),
    "time that runs backwards": (backwards_time, "closure", "cannot be"),
    "statistics that were edited": (
        in_json("*_robust_stats.json", lambda stats: stats["end_to_end_ms"].update(median=0.5)),
        "latencies",
        "statistics are not those of its latencies",
    ),
    "latencies that were edited": (in_json("*_robust_stats.json", doubled_round), "latencies", "x_sme2_off"),
    "latencies that were edited with their statistics": (
        consistently_slower,
        "latencies",
        "its latencies are not those in journal.jsonl",
    ),
    "a round left out": (
        in_json("*_robust_stats.json", lambda stats: stats["end_to_end_rounds_ms"].pop()),
        "latencies",
        "rounds, the manifest says",
    ),
    "an experiment with more rounds than the run": (
        in_manifest(lambda manifest: manifest["schedule"].update(rounds_done=5)),
        "latencies",
        "has 6 rounds, the whole run has 5",
    ),
    "metrics of another run": (
        in_json("metrics.json", lambda metrics: metrics["latencies"][0]["end_to_end_ms"].update(mean=1.0)),
        "latencies",
        "differ",
    ),
    "a verdict its interval does not give": (
        in_json("metrics.json", wrong_verdict),
        "comparisons",
        "interval holds 1",
    ),
    "outputs that differ": (
        in_bytes("x_sme2_on/*_t1_output0.bin", lambda raw: struct.pack("<f", 9.0) * (len(raw) // 4)),
        "outputs",
        "computes something else",
    ),
    "an output cut short": (in_bytes("*_output0.bin", lambda raw: raw[:-4]), "outputs", "bytes"),
    "a summary that was edited": (
        in_json("analysis_summary.json", lambda summary: summary["per_etdump"][0].update(e2e_ms=1e-3)),
        "analysis",
        "e2e_ms",
    ),
    "a category that was edited": (
        in_json(
            "analysis_summary.json",
            lambda summary: summary["per_etdump"][0]["categories_ms"].update({"Data Movement": 99.0}),
        ),
        "analysis",
        "Data Movement",
    ),
    "a missing summary": (removed("analysis_summary.json"), "analysis", "analysis_summary.json"),
    "a missing CSV file": (removed("*_ops_stats.csv"), "CSV files", "_ops_stats.csv is missing"),
    "a CSV file that was edited": (
        in_bytes("*_all_runs_timeline.csv", lambda raw: raw.replace(b",Execute,", b",Executed,", 1)),
        "CSV files",
        "line 2",
    ),
    "a CSV file cut short": (
        in_bytes("*_all_runs_timeline.csv", lambda raw: raw[: raw.rfind(b"\n", 0, -1) + 1]),
        "CSV files",
        "_all_runs_timeline.csv, line",
    ),
    "a JSON file without its version": (
        in_json("*_pipeline_summary.json", lambda summary: summary.pop("schema_version")),
        "JSON files",
        "schema_version",
    ),
    "a damaged journal": (
        in_bytes("journal.jsonl", lambda raw: b"{}\n" + raw),
        "latencies",
        "journal.jsonl, line 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_found_with_its_cure(home: Path, tmp_path: Path, name: str) -> None:
    spoil, check, said = BROKEN[name]
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    spoil(run_dir)
    validation = validate(run_dir)
    found = {one.name: one for one in validation.checks if one.status == "fail"}
    assert not validation.ok and check in found, validation.as_text()
    assert said in found[check].found and found[check].fix


@pytest.mark.parametrize("program_is_here", [True, False])
def test_a_dump_of_another_program_is_found(
    home: Path, tmp_path: Path, exported, program_is_here: bool
) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    if not program_is_here:
        shutil.rmtree(run_dir.parent.parent / "artifacts")
    other = record(exported("mobilenet_v3_small", "fp32").pte, tmp_path, "other", runs=5)
    shutil.copy(other, only(run_dir, "x_sme2_off/*_t1.etdump"))
    assert "is of another program than" in failed(run_dir)["same program"]


def test_latencies_in_an_emulated_run_are_found(home: Path, tmp_path: Path) -> None:
    out = copied(home, tmp_path)
    run_dir = out / "runs" / "emulated"
    linux = load(out / "runs/linux/metrics.json")
    edit(run_dir / "metrics.json", lambda metrics: metrics.update(latencies=linux["latencies"]))
    assert failed(run_dir) == {"no latency": "metrics.json holds latencies"}


def test_a_switch_that_did_not_work_is_found(home: Path, tmp_path: Path) -> None:
    run_dir = copied(home, tmp_path) / "runs" / "emulated"
    on, off = only(run_dir, "e_sme2_on/*_kernels.csv"), only(run_dir, "e_sme2_off/*_kernels.csv")
    shutil.copy(on, off)
    assert "had SME2 off, but SME2 ran" in failed(run_dir)["kernels"]


def test_dumps_alone_promise_only_themselves(home: Path, tmp_path: Path) -> None:
    shutil.copy(only(home / "runs" / "linux", "*_t1.etdump"), tmp_path / "a_t1.etdump")
    assert validate(tmp_path).ok
    (tmp_path / "b_t1.etdump").write_bytes(b"ED00")
    assert list(failed(tmp_path)) == ["dumps"]


def test_the_command_and_the_script_exit_with_0_1_or_2(home: Path, tmp_path: Path, cli, script) -> None:
    run_dir = copied(home, tmp_path, emulated=False) / "runs" / "linux"
    done = cli("validate", run_dir)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("\nvalid"), done.tail()
    (run_dir / "metrics.json").unlink()
    done = cli("validate", run_dir, "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and facts["ok"] is False and facts["schema_version"] == 1
    done = script("scripts/validate_results.py", "--results", run_dir)
    assert done.returncode == 1 and "FAIL  files" in done.stdout and "cure: " in done.stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    for place in (tmp_path / "none", empty):
        done = cli("validate", place)
        assert done.returncode == 2 and done.stderr.startswith("error: ")
