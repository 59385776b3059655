"""What the kit once answered wrongly, each held by the right answer: issue 8 tells how it was seen."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import ARM, EMULATED, INT8, ON_AND_OFF, PROGRAM, RUNS, SME2, X86_64, copied, load, replay
from replay import ReplayTarget

from model_profiling.compat.scripts import run_pipeline
from model_profiling.core.errors import SetupError
from model_profiling.report.data import ReportData
from model_profiling.runs import Run
from model_profiling.statistics.speedup import Verdict
from model_profiling.targets import Job, TargetChoice
from model_profiling.workflow.profile import ProfileOptions, profile_one
from model_profiling.workflow.report import gather_report

WITHOUT_SME2 = {"x86_64": X86_64, "arm": ARM}


def kept(recorded: Path, folder: Path) -> Path:
    """A copy of a recorded run, without its program: as if it had been mailed."""
    return Path(shutil.copytree(recorded, folder / recorded.name))


@pytest.fixture(params=WITHOUT_SME2)
def without_sme2(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A finished run of a CPU without SME2, without its program."""
    return kept(WITHOUT_SME2[request.param], tmp_path)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def interrupt_after(count: int) -> Callable[[Job], None]:
    jobs: list[Job] = []

    def before(job: Job) -> None:
        jobs.append(job)
        if len(jobs) > count:
            raise KeyboardInterrupt

    return before


def assert_not_comparable(data: ReportData) -> None:
    """The one answer about SME2 on a CPU without it: it is measured once."""
    found = [pair for pair in data.pairs if pair.pair.baseline.threads == pair.pair.candidate.threads]
    assert not found and data.has_sme2 is False
    assert any(result.experiment.endswith("baseline") for result in data.run.results)
    assert not [finding.id for finding in data.findings if "sme2" in finding.id], (
        "advice takes it for granted"
    )


def test_analyze_on_a_cpu_without_sme2_compares_nothing_and_advises_nothing_about_it(
    without_sme2: Path, sme2prof
) -> None:
    run_dir = without_sme2
    done = sme2prof("analyze", run_dir)
    assert done.returncode == 0 and Verdict.NO_CHANGE.value not in done.stdout
    summary = load(run_dir / "analysis_summary.json")
    for pair in (found for found in summary["pairs"] if found["label"] != "threads"):
        assert Verdict.NOT_COMPARABLE.value in done.stdout
        assert pair["not_comparable"] and pair["e2e"]["verdict"] == "not comparable"
        assert all(part["ratio"] is None for part in (*pair["operators"], *pair["categories"]))
    assert not [finding for finding in summary["findings"] if "sme2" in finding["id"]]
    assert_not_comparable(gather_report(run_dir))


def test_so_does_the_report_with_metrics_gone(without_sme2: Path) -> None:
    (without_sme2 / "metrics.json").unlink()
    assert_not_comparable(gather_report(without_sme2))
    (without_sme2 / "analysis_summary.json").unlink()
    assert_not_comparable(gather_report(without_sme2))


@pytest.mark.parametrize("jobs", [2, 5, 11])
def test_so_does_the_report_on_an_interrupted_run(tmp_path: Path, jobs: int, sme2prof) -> None:
    run_dir = tmp_path / "linux"
    target = ReplayTarget(X86_64, before=interrupt_after(jobs))
    with pytest.raises(KeyboardInterrupt):
        replay(target, run_dir)
    found = Run.open(run_dir)
    assert found.manifest is not None and found.manifest.unfinished == "interrupted"
    assert_not_comparable(gather_report(run_dir))
    assert sme2prof("analyze", run_dir).returncode == (0 if found.dumps else 2)
    if found.dumps:
        assert not load(run_dir / "analysis_summary.json")["pairs"]


def test_another_program_of_the_model_leaves_the_run_and_its_evidence_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out_small_cnn"
    shutil.copytree(PROGRAM.parent, out / "artifacts")
    monkeypatch.setattr(
        "model_profiling.workflow.profile.open_target",
        lambda choice: ReplayTarget(EMULATED if "emulated" in str(choice) else ARM),
    )
    before: dict[str, bytes] = {}
    for program in (PROGRAM, INT8):
        named = str(out / "artifacts" / program.name)
        profile_one(named, ProfileOptions(target=TargetChoice("emulated")))
        profile_one(named, ProfileOptions(target=TargetChoice("host"), runs=RUNS))
        before = before or files_in(out / "runs" / "xnnpack_fp16")
    assert sorted(path.name for path in (out / "runs").iterdir()) == ["xnnpack_fp16", "xnnpack_int8"]
    assert files_in(out / "runs" / "xnnpack_fp16") == before
    for variant in ("xnnpack_fp16", "xnnpack_int8"):
        data = gather_report(out / "runs" / variant / "linux")
        assert "sme2" in {kernels.sme.answer for place in data.evidence for kernels in place.kernels}
        assert data.run.manifest is not None and data.run.evidence is not None
        assert data.run.evidence.model_sha256 == data.run.manifest.model_sha256


@pytest.mark.parametrize("force", [False, True])
def test_a_run_that_cannot_be_prepared_leaves_the_last_good_one_in_place(
    sme2_home: Path, tmp_path: Path, force: bool
) -> None:
    from model_profiling.workflow.measure import RunOptions

    run_dir = copied(sme2_home, tmp_path) / "runs" / "xnnpack_fp16" / "linux"
    before = files_in(run_dir)
    target = ReplayTarget(SME2, unprepared=SetupError("there is no C++ compiler", "install one"))
    with pytest.raises(SetupError):
        replay(target, run_dir, options=RunOptions(force=force))
    assert files_in(run_dir) == before
    assert [path.name for path in run_dir.parent.iterdir() if path.is_dir()] == ["linux"]


def test_what_is_told_to_reproduce_a_pipeline_script_is_accepted_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sme2prof
) -> None:
    monkeypatch.setattr("model_profiling.workflow.measure.open_target", lambda *_: ReplayTarget(SME2))
    config = tmp_path / "config.json"
    told = {"model": str(PROGRAM), "output_root": str(tmp_path / "run"), "schedule": {"rounds": 3}}
    experiments = [{**experiment, "runs": RUNS} for experiment in ON_AND_OFF]
    config.write_text(json.dumps({**told, "experiments": experiments}))
    code = run_pipeline("", system=sys.platform, argv=["--config", str(config), "--force"])
    assert code == 0
    commands = gather_report(tmp_path / "run").reproduce
    assert len(commands) == 2
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "sme2prof" and sme2prof(*words).returncode == 0, command
