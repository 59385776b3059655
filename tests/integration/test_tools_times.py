"""The documented tools on real emulated and timed runs: no time is shown as the latency it is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from measured_runs import copied, edit, load, pristine

from model_profiling import process
from model_profiling.workflow.analyse import analyse

Tool = Callable[..., process.Completed]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, exported: Callable[..., object]) -> Path:
    return pristine(tmp_path_factory, exported)


@pytest.fixture
def out(home: Path, tmp_path: Path) -> Path:
    return copied(home, tmp_path)


def timelines(run_dir: Path) -> list[Path]:
    return [
        next(run_dir.glob(f"*_sme2_{switch}/*_t1_exec_all_runs_timeline.csv")) for switch in ("off", "on")
    ]


def dump_of(run_dir: Path) -> Path:
    return next(run_dir.glob("*_sme2_on/*_t1.etdump"))


def refused(done: process.Completed, why: str) -> bool:
    assert len(done.stderr.strip().splitlines()) == 1 and " ms" not in done.stdout, done.stdout
    return done.returncode == 2 and "times are not latencies" in done.stderr and why in done.stderr


def test_emulated_times_are_refused_by_the_tools(out: Path, tmp_path: Path, script: Tool, cli: Tool) -> None:
    run_dir = out / "runs" / "emulated"
    off, on = timelines(run_dir)
    kept = sorted(run_dir.rglob("*"))
    words = ("--timeline-csv", off, "--compare", on, "--output-dir", tmp_path / "written")
    assert refused(script("tools/analyze_etdump_csv.py", *words), "an emulated run (manifest.json says so)")
    assert not (tmp_path / "written").exists()
    host = timelines(out / "runs" / "linux")[0]
    assert refused(
        script("tools/analyze_etdump_csv.py", "--timeline-csv", host, "--compare", on), "emulated run"
    )
    for path in (dump_of(run_dir), on):
        assert refused(script("tools/robust_latency_analysis.py", path), "emulated run")
        assert refused(script("tools/robust_latency_analysis.py", host, "--compare", path), "emulated run")
    assert sorted(run_dir.rglob("*")) == kept
    assert cli("validate", run_dir).ok


def test_a_kernel_trace_is_refused_and_a_timed_trace_says_so(out: Path, tmp_path: Path, script: Tool) -> None:
    run_dir = out / "runs" / "linux"
    off, on = timelines(run_dir)
    done = script("tools/analyze_etdump_csv.py", "--timeline-csv", off, "--compare", on)
    assert done.ok and done.stdout.count("5 runs with the tracer on, median") == 2
    done = script("tools/robust_latency_analysis.py", dump_of(run_dir), "--output", tmp_path / "stats.json")
    assert done.ok and "measured with the tracer on" in done.stdout
    assert load(tmp_path / "stats.json")["tracer_on"] is True
    edit(
        run_dir / "manifest.json",
        lambda manifest: [one.update(mode="xnntrace") for one in manifest["results"]],
    )
    assert refused(script("tools/analyze_etdump_csv.py", "--timeline-csv", off), "a run that traces kernels")
    assert refused(script("tools/robust_latency_analysis.py", dump_of(run_dir)), "a run that traces kernels")


def test_csv_files_taken_out_of_an_emulated_run_stay_emulated(
    out: Path, tmp_path: Path, script: Tool
) -> None:
    taken = tmp_path / "taken"
    dump = dump_of(out / "runs" / "emulated")
    done = script("tools/etdump_to_csv.py", "--etdump", dump, "--out-dir", taken, "--all-runs")
    assert done.ok and "its times are not latencies" in done.stderr
    timeline = taken / f"{dump.stem}_exec_all_runs_timeline.csv"
    assert refused(script("tools/analyze_etdump_csv.py", "--timeline-csv", timeline), "_exec_e2e.csv says so")
    assert refused(script("tools/robust_latency_analysis.py", timeline), "_exec_e2e.csv says so")


def only(run_dir: Path, *kept: str) -> None:
    """Leave of what says that a run was emulated only the files named, and the dumps."""
    for pattern in ("manifest.json", "metrics.json", "analysis_summary.json", "*_exec_e2e.csv"):
        if pattern not in kept:
            for path in run_dir.rglob(pattern):
                path.unlink()


@pytest.mark.parametrize("kept", ["metrics.json", "analysis_summary.json", "*_exec_e2e.csv"])
def test_a_removed_manifest_does_not_unmask_emulated_times(
    out: Path, tmp_path: Path, cli: Tool, script: Tool, kept: str
) -> None:
    run_dir = tmp_path / "moved"
    shutil.move(out / "runs" / "emulated", run_dir)
    only(run_dir, kept)
    assert refused(script("tools/robust_latency_analysis.py", dump_of(run_dir)), kept.lstrip("*"))
    for _ in range(2):  # the second time it reads what the first wrote
        done = cli("analyze", run_dir)
        assert done.ok and done.stdout.count("not of a latency") == 2 and " MS" not in done.stdout
        assert "not taken as latencies" in done.stderr
        summary = load(run_dir / "analysis_summary.json")
        assert {entry["timings_are_latency"] for entry in summary["per_etdump"]} == {False}
    assert not analyse(dump_of(run_dir)).dumps[0].timings_are_latency


@pytest.mark.parametrize("name", ["emulated/x_sme2_on", "emulated_sme2_on", "sme2_on"])
def test_the_kit_s_names_of_emulated_runs_are_believed_without_any_record(
    out: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "bare" / name
    folder.mkdir(parents=True)
    emulated = name.startswith("emulated")
    shutil.copy(dump_of(out / "runs" / "emulated"), folder / "toy_t1.etdump")
    assert analyse(folder / "toy_t1.etdump").dumps[0].timings_are_latency is not emulated
    assert analyse(tmp_path / "bare").dumps[0].timings_are_latency is not emulated
    shutil.copy(folder / "toy_t1.etdump", tmp_path / "toy_emulated_sme2_on_t1.etdump")
    assert not analyse(tmp_path / "toy_emulated_sme2_on_t1.etdump").dumps[0].timings_are_latency


def test_a_folder_inside_an_emulated_run_is_emulated(out: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "moved"
    shutil.move(out / "runs" / "emulated", run_dir)
    only(run_dir, "manifest.json")
    assert not analyse(dump_of(run_dir).parent).dumps[0].timings_are_latency


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("{"),
        lambda path: path.write_text("[]"),
        lambda path: edit(path, lambda manifest: manifest.update(schema_version=2)),
        lambda path: edit(path, lambda manifest: manifest.update(target={"timings_are_latency": "no"})),
    ],
)
def test_all_commands_refuse_the_same_manifests(
    out: Path, cli: Tool, script: Tool, damage: Callable[[Path], None]
) -> None:
    run_dir = out / "runs" / "emulated"
    damage(run_dir / "manifest.json")
    said = set()
    for command in ("analyze", "report"):
        done = cli(command, run_dir)
        assert done.returncode == 2 and "manifest.json" in done.stderr and "remove" not in done.stderr
        said.add(done.stderr)
    done = script("tools/robust_latency_analysis.py", dump_of(run_dir))
    assert done.returncode == 2
    assert said == {done.stderr}
    assert cli("validate", run_dir).returncode != 0


def test_a_run_s_kernel_view_has_every_pair(out: Path, script: Tool) -> None:
    run_dir = out / "runs" / "linux"
    written = (run_dir / "kernel_view.md").read_text()
    assert [line for line in written.splitlines() if line.startswith("## ")] == ["## SME2", "## threads"]
    assert "no SME or SME2 kernel ran" in written or "SME2 ran" in written
    assert "no operator of the dump" not in written, "calls were counted"
    title = written.partition("\n")[0].removeprefix("# ")
    done = script("tools/generate_kernel_view.py", "--run-dir", run_dir, "--title", title)
    assert done.ok, done.stderr
    assert (run_dir / "kernel_view.md").read_text() == written
    labels = [one["label"] for one in json.loads((run_dir / "metrics.json").read_text())["comparisons"]]
    assert labels == ["SME2", "threads"]
