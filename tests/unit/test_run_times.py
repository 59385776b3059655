"""What a time means, also where the file that says so is lost: losing it never makes a latency."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model_profiling.core.records import write_record
from model_profiling.run import Manifest, Metrics, Result, Run, Times
from model_profiling.run.manifest import TargetFacts
from model_profiling.run.run import times_of_file
from model_profiling.run.times import times_of_mode, times_without_manifest

DUMP = "on/toy_on_t1.etdump"


def touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


@pytest.mark.parametrize(
    ("folder", "times"),
    [
        ("emulated", Times.EMULATED),
        ("emulated-20260101-101010", Times.EMULATED),
        ("emulated-earlier-1", Times.EMULATED),
        ("emulated_old", Times.EMULATED),
        ("emulatedish", Times.UNKNOWN),
        ("not-emulated", Times.UNKNOWN),
        ("linux", Times.UNKNOWN),
    ],
)
def test_a_folder_named_as_the_kit_names_emulated_runs_tells(tmp_path, folder, times, monkeypatch):
    dump = touched(tmp_path / folder / DUMP)
    made = touched(tmp_path / folder / "on" / "toy_on_t1_exec_all_runs_timeline.csv")
    for path in (dump, made, tmp_path / folder):
        assert times_without_manifest(path)[0] is times
    run = Run.open(tmp_path / folder)
    assert run.times is run.dumps[0].times is times
    monkeypatch.chdir(tmp_path / folder)
    assert times_without_manifest(Path())[0] is times, "also from inside it"
    assert Run.open(Path(), times=Times.HARDWARE).times is (
        Times.EMULATED if times is Times.EMULATED else Times.HARDWARE
    ), "the user's word counts only where nothing else speaks"


def test_an_experiment_of_an_emulated_target_tells_by_its_name(tmp_path: Path) -> None:
    assert times_without_manifest(tmp_path / "toy_emulated_sme2_on_t1.etdump")[0] is Times.EMULATED
    assert times_without_manifest(tmp_path / "emulated_sme2_on_t1_r3.etdump")[0] is Times.EMULATED
    assert times_without_manifest(tmp_path / "toy_not_so_emulated.etdump")[0] is Times.UNKNOWN


@pytest.mark.parametrize(
    ("name", "content", "times"),
    [
        ("metrics.json", {"schema_version": 2, "times": "emulated"}, Times.EMULATED),
        ("metrics.json", {"schema_version": 1, "timings_are_latency": False}, Times.EMULATED),
        ("metrics.json", {"schema_version": 2, "times": "hardware"}, Times.UNKNOWN),
        ("analysis_summary.json", {"per_etdump": [{"etdump": DUMP, "times": "emulated"}]}, Times.EMULATED),
        (
            "analysis_summary.json",
            {"per_etdump": [{"etdump": DUMP, "timings_are_latency": False}]},
            Times.TRACED,
        ),
        (
            "analysis_summary.json",
            {"per_etdump": [{"etdump": "on/other.etdump", "times": "emulated"}]},
            Times.UNKNOWN,
        ),
        ("metrics.json", "{", Times.UNKNOWN),
        ("analysis_summary.json", [], Times.UNKNOWN),
    ],
)
def test_what_earlier_analyses_wrote_still_tells(tmp_path, name, content, times):
    dump = touched(tmp_path / "linux" / DUMP)
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "linux" / name).write_text(text)
    assert times_without_manifest(dump) == (times, "" if times is Times.UNKNOWN else name)


@pytest.mark.parametrize(
    ("header", "row", "times"),
    [
        ("model_id,times", "toy,traced", Times.TRACED),
        ("model_id,times", "toy,emulated", Times.EMULATED),
        ("model_id,times", "toy,hardware", Times.UNKNOWN),
        ("model_id,timings_are_latency", "toy,False", Times.TRACED),
        ("model_id,timings_are_latency", "toy,True", Times.UNKNOWN),
        ("model_id,times", "", Times.UNKNOWN),
    ],
)
def test_the_end_to_end_csv_beside_a_dump_tells(tmp_path: Path, header: str, row: str, times: Times) -> None:
    later = touched(tmp_path / "on" / "rounds" / "toy_on_t1_r2.etdump")
    dump = touched(tmp_path / DUMP)
    (tmp_path / "on" / "toy_on_t1_exec_e2e.csv").write_text(f"{header}\n{row}\n")
    assert times_without_manifest(dump)[0] is times_without_manifest(later)[0] is times


def test_the_manifest_speaks_for_every_file_of_its_run(tmp_path: Path) -> None:
    target = TargetFacts("host", "linux", Times.HARDWARE)
    results = (
        Result(experiment="on", threads=1, etdump=DUMP, etdump_warmup_runs=2),
        Result(experiment="trace", mode="xnntrace", etdump="trace/toy_trace_t1.etdump"),
    )
    for result in results:
        touched(tmp_path / str(result.etdump))
    write_record(tmp_path / "manifest.json", Manifest(target=target, results=results))
    times, said_by, result = times_of_file(touched(tmp_path / "on" / "toy_on_t1_exec_ops_stats.csv"))
    assert (times, said_by, result) == (Times.HARDWARE, "manifest.json", results[0])
    assert times_of_file(tmp_path / "trace" / "toy_trace_t1.etdump")[0] is Times.TRACED
    (tmp_path / "manifest.json").unlink()
    assert times_of_file(tmp_path / DUMP)[0] is Times.UNKNOWN
    assert Run.open(tmp_path).times is Times.UNKNOWN, "unknown is never hardware"
    write_record(tmp_path / "metrics.json", Metrics(times=Times.HARDWARE))
    assert Run.open(tmp_path).times is Times.UNKNOWN
    write_record(tmp_path / "metrics.json", Metrics(times=Times.EMULATED))
    assert Run.open(tmp_path).times is Times.EMULATED


def test_only_hardware_gives_latencies_and_a_trace_takes_them_away() -> None:
    assert [times for times in Times if times.are_latencies] == [Times.HARDWARE]
    assert [times for times in Times if times.are_shown] == [Times.HARDWARE, Times.UNKNOWN]
    assert times_of_mode("timing", Times.HARDWARE) is Times.HARDWARE
    assert times_of_mode("xnntrace", Times.HARDWARE) is Times.TRACED
    for target in (Times.EMULATED, Times.UNKNOWN):
        assert times_of_mode("xnntrace", target) is times_of_mode("timing", target) is target
