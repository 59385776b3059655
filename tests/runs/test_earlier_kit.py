"""Run directories as the kit 0.1.0 left them still open, are analysed, reported, validated and compared."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pages import section, tables
from recorded_runs import ARM, OLD, PROGRAM, SME2, edit, load, replay
from replay import ReplayTarget

from model_profiling.config.reading import parse_config
from model_profiling.report.run_report import run_document
from model_profiling.run import Run, Series, Times
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.compare import compare
from model_profiling.workflow.measure import RunOptions, run_config
from model_profiling.workflow.report import gather_report

ON, OFF = Series("linux_sme2_on", 1), Series("linux_sme2_off", 1)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """`out_small_cnn` as 0.1.0 laid it out: runs of every program in one folder."""
    folder = tmp_path / "out_small_cnn"
    shutil.copytree(PROGRAM.parent, folder / "artifacts")
    shutil.copytree(OLD, folder / "runs")
    return folder


def states(run_dir: Path) -> dict[str, str]:
    return {check.name: check.status for check in validate(run_dir).checks}


def test_they_open_as_what_they_are() -> None:
    linux, emulated = Run.open(OLD / "linux"), Run.open(OLD / "emulated")
    assert linux.series == (ON, OFF) and linux.times is Times.HARDWARE
    assert [linux.sme2_of(series) for series in linux.series] == [True, False]
    (pair,) = linux.pairs
    assert (pair.baseline, pair.candidate) == (OFF, ON) and pair.not_comparable
    assert pair.label == load(OLD / "linux" / "metrics.json")["comparisons"][0]["label"]
    assert linux.manifest is not None and linux.manifest.has_ended
    assert linux.manifest.experiments == ("linux_sme2_on", "linux_sme2_off")
    assert emulated.times is Times.EMULATED and emulated.pairs[0].not_comparable


def test_a_report_shows_the_figures_they_hold(out: Path) -> None:
    data = gather_report(out / "runs" / "linux")
    metrics = load(OLD / "linux" / "metrics.json")
    latency = section(run_document(data), "Latency")
    for entry, row in zip(
        metrics["latencies"], tables(latency, "experiment", "threads", "SME2")[0], strict=True
    ):
        assert row[0] == entry["experiment"]
        assert float(row[4]) == pytest.approx(entry["end_to_end_ms"]["median"], rel=0.001)
    ((pair,),) = tables(latency, "comparison")
    assert pair[-1] == metrics["comparisons"][0]["verdict"] == "not comparable"
    assert [found.verdict for found in data.evidence[0].parity] == [metrics["parity"][0]["verdict"]]
    operators = tables(section(run_document(data), "Operators"), "operator")[0]
    assert {"features.0", "features.2", "features.4", "mix"} <= {row[5] for row in operators}


def test_the_emulated_run_beside_one_is_still_its_evidence(out: Path) -> None:
    own, beside = gather_report(out / "runs" / "linux").evidence
    assert not own.emulated and beside.emulated
    assert {found.series.experiment: found.sme.answer for found in beside.kernels} == {
        "emulated_sme2_on": "sme2",
        "emulated_sme2_off": "none",
    }
    shutil.rmtree(out / "runs" / "emulated")
    assert len(gather_report(out / "runs" / "linux").evidence) == 1


def test_they_validate_and_analysing_them_writes_their_files_anew(out: Path, sme2prof) -> None:
    for name in ("linux", "emulated"):
        run_dir = out / "runs" / name
        # What was measured is whole; ops_stats.total_ms means something else today, so CSV files are stale.
        assert {check for check, state in states(run_dir).items() if state == "fail"} == {"CSV files"}
        assert sme2prof("analyze", run_dir).returncode == 0
        assert validate(run_dir).ok, validate(run_dir).as_text()
        assert states(run_dir)["CSV files"] == "pass"


def test_without_their_program_they_are_whole_but_for_what_it_explained(tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(OLD / "linux", tmp_path / "mailed"))
    assert validate(run_dir).ok and states(run_dir)["CSV files"] == "skipped"
    data = gather_report(run_dir)
    assert data.analysis is not None and data.analysis.model is None
    assert any(".pte" in gap for gap in data.gaps)
    assert any(".pte" in warning.seen for warning in analyse(run_dir).warnings)


def test_they_are_compared_with_runs_of_today() -> None:
    assert {found.end_to_end.verdict for found in compare(OLD / "linux", OLD / "linux").series} == {
        Verdict.NO_CHANGE
    }
    today = compare(OLD / "linux", ARM)
    baseline = Series("linux_baseline", 1)
    assert [(found.before, found.after) for found in today.series] == [(ON, baseline), (OFF, baseline)]
    assert all(found.comparable and not found.with_tracer for found in today.series)
    assert {found.end_to_end.verdict for found in compare(OLD / "linux", SME2).series} == {
        Verdict.NOT_COMPARABLE
    }, "another CPU"


def test_single_dumps_of_theirs_are_what_their_run_says() -> None:
    (dump,) = (OLD / "emulated" / "emulated_sme2_on").glob("*.etdump")
    assert analyse(dump).dumps[0].times is Times.EMULATED


def test_one_that_was_cut_short_can_be_continued(out: Path) -> None:
    run_dir = out / "runs" / "linux"
    journal = run_dir / "journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:20]))
    edit(run_dir / "manifest.json", lambda manifest: manifest.update(state="interrupted"))
    raw = load(run_dir / "config.json")
    raw.update(model=str(out / "artifacts" / PROGRAM.name), output_root=str(run_dir))
    config, problems = parse_config(raw, folder=out)
    assert config is not None and not problems
    target = ReplayTarget(OLD / "linux")
    done = run_config(config, RunOptions(resume=True), target=target)
    assert done.moved is None and 0 < len(target.jobs) < 10
    assert validate(run_dir).ok, validate(run_dir).as_text()


def test_a_new_run_keeps_them_under_their_date(out: Path) -> None:
    run_dir = out / "runs" / "linux"
    started = load(run_dir / "manifest.json")["sessions"][0]["started"]
    done = replay(ARM, run_dir, program=out / "artifacts" / PROGRAM.name)
    assert done.moved is not None and done.moved.name.removeprefix("linux-")[:8] == started[:10].replace(
        "-", ""
    )
    assert Run.open(done.moved).series == (ON, OFF) and (done.moved / "report.md").is_file()
