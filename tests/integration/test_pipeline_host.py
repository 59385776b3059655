"""The pipeline on this machine, with real processes: what a run directory holds and how a run may end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import dumps_in, load, raw_config
from said import says
from stand_ins import started, wait_until

from model_profiling.config.reading import parse_config
from model_profiling.config.series import Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core import process
from model_profiling.etdump import read_etdump
from model_profiling.etdump.reader import EXACT, read_timed
from model_profiling.runner.features import host_features
from model_profiling.runs.journal import Journal
from model_profiling.runs.times import timed
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow.measure import run_config

Raw = dict[str, Any]


def twice(model: Path, run_dir: Path, **changes: Any) -> Raw:
    """The same experiment twice, which every CPU measures twice, as short as it can be and still be whole."""
    experiments = [{"name": name, "runs": 3, "warmup": 1} for name in ("one", "two")]
    pairs = [{"baseline": "two", "candidate": "one", "label": "twice"}]
    asked = {"schedule": {"rounds": 3, "seed": 5, "budget_s": 1}, "analysis": {"compare_pairs": pairs}}
    return raw_config(run_dir, experiments, program=model, **asked) | changes


def checked(raw: Raw) -> ProfileConfig:
    return parse_config(raw, folder=Path.cwd())


@pytest.fixture
def cli(sme2prof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., process.Completed]:
    """The command in this process, working in the test's folder: starting Python anew takes longer than most
    runs here. Those that are to be killed are started by the tests themselves."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object, **env: str) -> process.Completed:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            return sme2prof(*words)

    return call


@pytest.mark.quick
def test_a_run_directory_holds_what_the_contract_says(exported, cli, tmp_path: Path) -> None:
    model, run_dir = exported("toy_cnn", "fp16").pte, tmp_path / "out" / "runs" / "linux"
    (tmp_path / "c.json").write_text(json.dumps(twice(model, run_dir)))
    done = cli("run", "c.json")
    assert done.ok, done.tail()
    stem = model.stem
    wholes = ("manifest.json", "metrics.json", "analysis_summary.json", "kernel_view.md", "report.md")
    for name in (*wholes, "program_graph.json"):
        assert (run_dir / name).is_file(), name
    for ending in ("json", "md"):
        assert (run_dir / f"{stem}_pipeline_summary.{ending}").is_file()
    for name in ("one", "two"):
        for ending in (".etdump", ".log", "_robust_stats.json", "_kernels.csv", "_exec_ops_stats.csv"):
            assert (run_dir / name / f"{stem}_{name}_t1{ending}").is_file(), ending
        if sys.platform == "linux":
            dumps = dumps_in(run_dir / name)
            assert len(dumps) == 3 and all(read_timed(dump).clock == EXACT for dump in dumps)
    assert not (run_dir / ".work").exists()

    manifest = load(run_dir / "manifest.json")
    assert manifest["state"] == "finished"
    assert manifest["schedule"]["seed"] == 5 and manifest["schedule"]["rounds_done"] == 3
    assert manifest["executorch"]["version"] and manifest["runner"]["build_id"]
    assert manifest["machine"]["before"]["cpu"] == manifest["machine"]["after"]["cpu"]
    assert manifest["sessions"][0]["command_line"] == ["sme2prof", "run", "c.json"]
    for result in manifest["results"]:
        (output,) = result["outputs"]
        assert output["checksum"] == fnv1a((run_dir / output["file"]).read_bytes())
        length = result["etdump_turn_length"]
        tables = [read_etdump(run_dir / dump) for dump in result["etdump_rounds"]]
        runs = [int((table.name == table.name_index("Method::execute")).sum()) for table in tables]
        assert length >= 1 and len(runs) == 3 and all(0 < found <= 3 * length for found in runs)

    # Every step of the schedule was done once, those of a launch with the same seconds and one name.
    entries = Journal(run_dir).entries()
    planned = [key for keys in manifest["schedule"]["order"] for key in keys]
    assert sorted(entry.step.key for entry in entries) == sorted(planned)
    launches = {(entry.kind, entry.round): entry.launch for entry in entries if entry.kind != "evidence"}
    assert len(set(launches.values())) == 6 and None not in launches.values()
    assert all(entry.launch == launches.get((entry.kind, entry.round)) for entry in entries)

    metrics = load(run_dir / "metrics.json")
    stats = load(run_dir / "one" / f"{stem}_one_t1_robust_stats.json")
    turns = [entry for entry in entries if entry.kind == "untraced" and entry.experiment == "one"]
    kept = Journal(run_dir).latencies_ms(turns[0].series, len(turns))
    assert [len(one) for one in stats["end_to_end_rounds_ms"]] == [len(one) for one in kept]
    for latency in metrics["latencies"]:
        assert latency["way"] == "lockstep" and latency["measured"] in ("wall time", "cpu time")
        most = sum(len(entry.turns_ns) * max(1, len(entry.turns_ns[0]) - 1) for entry in turns)
        assert 0 < latency["end_to_end_ms"]["count"] <= most
        assert latency["tracer_cost"]["rounds"] == latency["rounds"] == 3
    assert metrics["parity"][0]["parity"]["verdict"] == "identical"
    (comparison,) = metrics["comparisons"]
    (pair,) = manifest["pairs"]
    assert [pair[side] for side in ("baseline", "candidate")] == [
        {"experiment": name, "threads": 1} for name in ("two", "one")
    ]
    assert comparison["speedup"]["ratio"] and pair["not_comparable"] is None


def fnv1a(content: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"fnv1a:{value:016x}"


def test_a_feature_that_matters_is_found_faster(exported, tmp_path: Path) -> None:
    raw = twice(exported("toy_cnn", "fp16").pte, tmp_path / "run", schedule={"budget_s": 4})
    raw["experiments"] = [
        {"name": "with", "runs": 4, "warmup": 1},
        {"name": "without", "disable": ["fp16"], "runs": 4, "warmup": 1},
    ]
    raw["analysis"] = {"compare_pairs": [{"baseline": "without", "candidate": "with", "label": "fp16"}]}
    outcome = run_config(checked(raw))
    assert outcome.run.metrics is not None
    if "fp16" not in host_features():
        assert not outcome.run.metrics.comparisons and len(outcome.run.results) == 1
        return
    (comparison,) = outcome.run.metrics.comparisons
    (parity,) = outcome.run.metrics.parity
    found = comparison.speedup
    assert found.verdict is Verdict.FASTER and found.low is not None and found.low > 1, comparison
    assert parity.verdict == "within tolerance"


def test_a_precise_run_stops_early_but_never_before_the_minimum(exported, tmp_path: Path) -> None:
    raw = twice(exported("toy_cnn", "fp32").pte, tmp_path / "run")
    raw["schedule"] = {"rounds": 60, "min_rounds": 8, "precision": 0.9, "budget_s": 60}
    outcome = run_config(checked(raw))
    assert outcome.run.manifest is not None
    schedule = outcome.run.manifest.schedule
    assert schedule.stopped_early and schedule.ended == "precision" and schedule.rounds_done == 8
    assert outcome.run.manifest.unfinished is None


def test_only_measures_one_and_what_was_measured_apart_is_measured_together(exported, cli, tmp_path) -> None:
    run_dir = tmp_path / "run"
    (tmp_path / "c.json").write_text(json.dumps(twice(exported("toy_cnn", "fp32").pte, run_dir)))
    assert cli("run", "c.json", "--only", "one").ok
    assert load(run_dir / "manifest.json")["state"] == "partial"
    shutil.copytree(run_dir, tmp_path / "partial")
    for words, apart in ((("--only", "two"), True), ((), False)):
        shutil.rmtree(run_dir)
        shutil.copytree(tmp_path / "partial", run_dir)
        assert cli("run", "c.json", *words).ok
        assert load(run_dir / "manifest.json")["state"] == "finished"
        (comparison,) = load(run_dir / "metrics.json")["comparisons"]
        assert comparison["speedup"]["method"].startswith("separate runs") is apart
    # The rounds of both were measured side by side in the end.
    journal = Journal(run_dir)
    assert Counter(each.session for each in journal.entries() if each.kind != "evidence") == {2: 12}
    sides = [timed(journal, Series(name, 1)) for name in ("one", "two")]
    assert sides[0].launches.keys() == sides[1].launches.keys()
    valid = validate(run_dir)
    assert valid.ok, valid.as_text()


def test_analysis_only_starts_no_process(exported, cli, tmp_path: Path) -> None:
    model = tmp_path / "m.pte"
    model.write_bytes(exported("toy_cnn", "fp32").pte.read_bytes())
    raw = twice(model, tmp_path / "run")
    (tmp_path / "c.json").write_text(json.dumps(raw))
    assert cli("run", "c.json").ok
    before = load(tmp_path / "run" / "manifest.json")
    figures = load(tmp_path / "run" / "metrics.json")
    journal = (tmp_path / "run" / "journal.jsonl").read_bytes()
    for name in ("metrics.json", "analysis_summary.json", "kernel_view.md"):
        (tmp_path / "run" / name).unlink()
    refused = cli("run", "c.json", "--analysis-only", "--budget", "9")
    assert refused.returncode == 2
    says(refused.stderr, "--budget is for measuring", "leave it or --analysis-only out")
    assert cli("run", "c.json", "--analysis-only", PATH="/nonexistent").ok
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == journal
    for name in ("metrics.json", "analysis_summary.json", "kernel_view.md"):
        assert (tmp_path / "run" / name).is_file()
    # Nor does it need the program any more, and a schedule that changed since measured nothing.
    model.unlink()
    raw["schedule"]["rounds"] = 2
    (tmp_path / "c.json").write_text(json.dumps(raw))
    (tmp_path / "run" / "metrics.json").unlink()
    done = cli("run", "c.json", "--analysis-only")
    assert done.ok, done.tail()
    assert load(tmp_path / "run" / "metrics.json") == figures
    after = load(tmp_path / "run" / "manifest.json")
    assert after == before and after["model_sha256"]


@pytest.fixture
def long_run(exported, tmp_path: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """Starts a run that would take minutes; returns once its first rounds are measured."""
    raw = twice(exported("toy_cnn", "fp32").pte, tmp_path / "run", schedule={"rounds": 3000, "budget_s": 900})
    (tmp_path / "c.json").write_text(json.dumps(raw))

    def start() -> subprocess.Popen[bytes]:
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        alone = {"cwd": tmp_path, "start_new_session": True, **streams}
        child = started("-m", "model_profiling", "run", "c.json", **alone)
        journal = tmp_path / "run" / "journal.jsonl"
        wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 6, "rounds measured", 60)
        return child

    return start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_continued(long_run, cli, tmp_path: Path, number: signal.Signals) -> None:
    child = long_run()
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"everything measured so far is kept; the same command continues" in said
    assert b"Traceback" not in said
    manifest = load(tmp_path / "run" / "manifest.json")
    assert manifest["state"] == "interrupted" and manifest["sessions"][0]["end"] == "KeyboardInterrupt"
    journal = Journal(tmp_path / "run")
    measured, begun = ({entry.step.key for entry in journal.entries()}, journal.rounds_begun(["one", "two"]))
    raw = load(tmp_path / "c.json")
    # A round that was begun cannot be taken back: one experiment would have it and the other not.
    raw["schedule"]["rounds"] = begun - 1
    (tmp_path / "c.json").write_text(json.dumps(raw))
    done = cli("run", "c.json")
    assert done.ok, done.tail()
    assert measured <= {entry.step.key for entry in Journal(tmp_path / "run").entries()}
    manifest = load(tmp_path / "run" / "manifest.json")
    assert manifest["schedule"]["rounds_done"] == begun
    assert [result["rounds"] for result in manifest["results"]] == [begun, begun]


def test_a_full_disk_is_one_line_and_the_run_continues(exported, cli, tiny_disk, tmp_path) -> None:
    raw = twice(exported("toy_cnn", "fp32").pte, tiny_disk / "run", schedule={"rounds": 2, "budget_s": 0.1})
    (tmp_path / "c.json").write_text(json.dumps(raw))
    ballast = tiny_disk / "ballast"
    for room in (24, 56, 88):
        ballast.write_bytes(b"\1" * (256 - room) * 1024)
        full = cli("run", "c.json", "--resume")
        assert full.returncode == 2
        errors = [line for line in full.stderr.splitlines() if line.startswith("error: ")]
        assert errors and all("no space left on device" in line for line in errors), full.stderr
        assert "Traceback" not in full.stderr
        ballast.unlink()
    # A page with charts wants more room than the disk has ever had.
    assert process.run(["mount", "-o", "remount,size=8m", tiny_disk], timeout=20).ok
    done = cli("run", "c.json", "--resume")
    assert done.ok, done.tail()
    assert load(tiny_disk / "run" / "manifest.json")["state"] == "finished"
