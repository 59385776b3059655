"""Two configs with one output_root, timing and then a trace, make one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pages import section, tables
from recorded_runs import ARM, INT8, ON_AND_OFF, PROGRAM, RUNS, SME2, TURN, X86_64, load, replay
from replay import ReplayTarget

from model_profiling.config.series import Series
from model_profiling.report.run_report import run_document
from model_profiling.runs import Run, Times
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow.measure import RunOptions, RunOutcome
from model_profiling.workflow.report import gather_report

TRACES = [
    {"name": f"trace_sme2_{switch}", "sme2": switch, "mode": "xnntrace", "runs": RUNS * TURN}
    for switch in ("on", "off")
]
TIMED, TRACED = (
    [Series(f"{part}_sme2_{switch}", 1) for switch in ("on", "off")] for part in ("linux", "trace")
)
BASELINES = [Series("linux_baseline", 1)], [Series("trace_baseline", 1)]


def timing(recorded: Path | ReplayTarget, run_dir: Path, rounds: int = 3, **more: Any) -> RunOutcome:
    return replay(recorded, run_dir, ON_AND_OFF, schedule={"rounds": rounds, "seed": 3}, **more)


def tracing(recorded: Path | ReplayTarget, run_dir: Path, **more: Any) -> RunOutcome:
    return replay(recorded, run_dir, TRACES, **more)


def assert_both_parts(
    run_dir: Path, timed: Sequence[Series] = TIMED, traced: Sequence[Series] = TRACED
) -> None:
    """Everything that reads the run tells of both."""
    data = gather_report(run_dir)
    run, manifest = data.run, data.run.manifest
    assert manifest is not None and manifest.unfinished is None
    assert set(manifest.experiments) == {series.experiment for series in (*timed, *traced)}
    assert set(run.series) == {*timed, *traced} and not run.warnings
    assert [run.times_of(series) for series in timed] == [Times.HARDWARE] * len(timed)
    assert [run.times_of(series) for series in traced] == [Times.TRACED] * len(traced)
    assert run.times is Times.HARDWARE
    summary = load(run_dir / "analysis_summary.json")
    assert {(entry["experiment"], entry["times"]) for entry in summary["series"]} == {
        *((series.experiment, "hardware") for series in timed),
        *((series.experiment, "traced") for series in traced),
    }
    assert [pair["label"] for pair in summary["pairs"]] == [pair.label for pair in run.pairs]
    page = run_document(data)
    latencies = tables(section(page, "Latency"), "experiment", "SME2")[0]
    assert [row[0] for row in latencies] == [series.experiment for series in timed]
    kernels = tables(section(page, "SME2"), "experiment", "SME2")[0]
    assert {row[0] for row in kernels} == {series.experiment for series in (*timed, *traced)}
    assert len(data.reproduce) == 1
    validation = validate(run_dir)
    assert validation.ok, validation.as_text()


@pytest.mark.parametrize("recorded", [SME2, X86_64], ids=lambda path: path.name)
def test_both_are_analysed_reported_and_valid(recorded: Path, tmp_path: Path) -> None:
    first = timing(recorded, tmp_path / "linux")
    joined = tracing(recorded, tmp_path / "linux")
    assert joined.moved is None and not joined.failed
    assert_both_parts(tmp_path / "linux", *((TIMED, TRACED) if recorded == SME2 else BASELINES))
    before, after = first.data.pairs, joined.data.pairs
    assert [(pair.label, pair.speedup) for pair in after] == [(pair.label, pair.speedup) for pair in before]
    assert [pair.speedup.verdict for pair in after] == ([Verdict.FASTER] if recorded == SME2 else [])


def test_the_trace_may_come_first(tmp_path: Path) -> None:
    assert tracing(SME2, tmp_path / "linux").data.times is Times.TRACED
    timing(SME2, tmp_path / "linux")
    assert_both_parts(tmp_path / "linux")


@pytest.mark.slow
def test_the_first_part_can_be_continued_with_more_rounds(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    timing(SME2, run_dir)
    tracing(SME2, run_dir)
    target = ReplayTarget(SME2)
    again = timing(target, run_dir, options=RunOptions(resume=True))
    assert not target.jobs and again.moved is None
    assert_both_parts(run_dir)
    timing(target, run_dir, rounds=5, options=RunOptions(resume=True))
    assert len(target.jobs) == 2 * 2 * 2  # rounds, experiments, traced and untraced
    assert_both_parts(run_dir)
    rounds = {entry["experiment"]: entry["rounds"] for entry in load(run_dir / "metrics.json")["latencies"]}
    assert set(rounds.values()) == {5}


def test_a_part_cut_short_is_continued_and_the_other_stays(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    tracing(SME2, run_dir)
    jobs: list[object] = []

    def interrupt(job: object) -> None:
        jobs.append(job)
        if len(jobs) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timing(ReplayTarget(SME2, before=interrupt), run_dir)
    found = Run.open(run_dir)
    assert found.manifest is not None and found.manifest.unfinished == "interrupted"
    assert set(TRACED) <= {dump.series for dump in found.dumps}
    timing(SME2, run_dir)
    assert_both_parts(run_dir)


@pytest.mark.parametrize(("machine", "program"), [(SME2, INT8), (ARM, PROGRAM)], ids=["program", "machine"])
def test_what_does_not_belong_together_is_not_joined(tmp_path: Path, machine: Path, program: Path) -> None:
    run_dir = tmp_path / "linux"
    timing(SME2, run_dir)
    second = tracing(machine, run_dir, program=program)
    assert second.moved is not None and second.moved.name.startswith("linux-2")
    assert set(Run.open(second.moved).series) == set(TIMED) and validate(second.moved).ok
    assert set(second.run.series) == set(TRACED if machine is SME2 else BASELINES[1])
