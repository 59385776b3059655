"""The documented tools on emulated and timed runs: no time is shown as the latency it is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import RUNS, copied, edit, load
from said import says

from model_profiling.core import process
from model_profiling.runs import Times
from model_profiling.workflow.analyse import analyse

Command = Callable[..., process.Completed]


@pytest.fixture
def runs(arm_home: Path, tmp_path: Path) -> Path:
    """The folder of a timed and an emulated run of one program."""
    return copied(arm_home, tmp_path) / "runs" / "xnnpack_fp16"


@pytest.fixture
def emulated(runs: Path, tmp_path: Path) -> Path:
    """The emulated run, moved to where no folder's name says so."""
    return Path(shutil.move(runs / "emulated", tmp_path / "moved"))


def timelines(run_dir: Path) -> list[Path]:
    """Of SME2 off and on, or of one baseline on 1 and 2 threads."""
    return sorted(run_dir.glob("*/*_exec_all_runs_timeline.csv"))[:2]


def dump_of(run_dir: Path) -> Path:
    return next(path for name in ("on", "baseline") for path in run_dir.glob(f"*_{name}/*_t1.etdump"))


def refused(done: process.Completed, why: str) -> bool:
    assert len(done.stderr.strip().splitlines()) == 1 and " ms" not in done.stdout, done.stdout
    return done.returncode == 2 and "not latencies" in done.stderr and why in done.stderr


def test_emulated_times_are_refused_by_the_tools(runs: Path, tmp_path: Path, entry: Command) -> None:
    off, on = timelines(runs / "emulated")
    kept = sorted(runs.rglob("*"))
    words = ("--timeline-csv", off, "--compare", on, "--output-dir", tmp_path / "written")
    assert refused(entry("tools/analyze_etdump_csv.py", *words), "manifest.json")
    assert not (tmp_path / "written").exists()
    host = timelines(runs / "linux")[0]
    assert refused(
        entry("tools/analyze_etdump_csv.py", "--timeline-csv", host, "--compare", on), "emulated run"
    )
    assert refused(entry("tools/robust_latency_analysis.py", "--timeline-csv", on), "emulated run")
    words = ("--timeline-csv", host, "--compare", on)
    assert refused(entry("tools/robust_latency_analysis.py", *words), "emulated run")
    assert sorted(runs.rglob("*")) == kept, "nothing was written"


def test_a_kernel_trace_is_refused_and_a_timed_trace_says_so(runs: Path, entry) -> None:
    run_dir = runs / "linux"
    off, on = timelines(run_dir)
    done = entry("tools/analyze_etdump_csv.py", "--timeline-csv", off, "--compare", on)
    assert done.ok and done.stdout.count(f"{RUNS} runs with the tracer") == 2
    done = entry("tools/robust_latency_analysis.py", "--timeline-csv", off)
    assert done.ok and "tracer" in done.stdout

    def trace(manifest: dict[str, list[dict[str, object]]]) -> None:
        for result in manifest["results"]:
            result.update(mode="xnntrace", times="traced")

    edit(run_dir / "manifest.json", trace)
    assert refused(entry("tools/analyze_etdump_csv.py", "--timeline-csv", off), "traces kernels")
    assert refused(entry("tools/robust_latency_analysis.py", "--timeline-csv", off), "traces kernels")


def test_csv_files_taken_out_of_an_emulated_run_stay_emulated(emulated: Path, tmp_path: Path, entry) -> None:
    taken, dump = tmp_path / "taken", dump_of(emulated)
    done = entry("tools/etdump_to_csv.py", "--etdump", dump, "--out-dir", taken, "--all-runs")
    assert done.ok
    says(done.stderr, "emulated run", "not latencies")
    timeline = taken / "alone_exec_all_runs_timeline.csv"
    for path in taken.iterdir():
        path.rename(taken / path.name.replace(dump.stem, "alone"))
    assert refused(entry("tools/analyze_etdump_csv.py", "--timeline-csv", timeline), "_exec_ops_stats.csv")
    assert refused(
        entry("tools/robust_latency_analysis.py", "--timeline-csv", timeline), "_exec_ops_stats.csv"
    )


@pytest.mark.parametrize("kept", ["metrics.json", "analysis_summary.json", "*_exec_ops_stats.csv"])
def test_a_removed_manifest_does_not_unmask_emulated_times(
    emulated: Path, sme2prof, entry, kept: str
) -> None:
    for pattern in ("manifest.json", "metrics.json", "analysis_summary.json", "*_exec_ops_stats.csv"):
        if pattern != kept:
            for path in emulated.rglob(pattern):
                path.unlink()
    for path in sorted(emulated.rglob("*emulated*"), reverse=True):  # no name has the word any more
        path.rename(path.with_name(path.name.replace("emulated", "linux")))
    if kept == "analysis_summary.json":
        text = (emulated / kept).read_text()
        (emulated / kept).write_text(text.replace("emulated_sme2", "linux_sme2"))
    assert refused(
        entry("tools/robust_latency_analysis.py", "--timeline-csv", timelines(emulated)[0]), kept.lstrip("*")
    )
    for _ in range(2):  # the second time it reads what the first wrote
        done = sme2prof("analyze", emulated)
        assert done.ok and "emulated run" in done.stdout and " ms" not in done.stdout
        assert "emulated run" in done.stderr
        summary = load(emulated / "analysis_summary.json")
        assert {entry["times"] for entry in summary["series"]} == {"emulated"}
    assert analyse(dump_of(emulated)).series[0].first.times is Times.EMULATED


def test_a_run_s_kernel_view_has_every_pair(runs: Path) -> None:
    run_dir = runs / "linux"
    written = (run_dir / "kernel_view.md").read_text()
    assert [line for line in written.splitlines() if line.startswith("## ")] == ["## Executed"]
    says(written, "not tested", "no SME2")
    assert [found["label"] for found in load(run_dir / "metrics.json")["comparisons"]] == ["threads"]
