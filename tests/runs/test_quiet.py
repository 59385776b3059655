"""What a run says beside its answer: the same few lines in the terminal, the report and the summary."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pages import lines, section
from recorded_runs import ARM, DATA, ON_AND_OFF, SME2, X86_64, Json, edit, load, make_config, replay
from replay import ReplayTarget

from model_profiling.config.names import CONFIG
from model_profiling.core.errors import RunError
from model_profiling.report import verdict
from model_profiling.report.run_report import run_document
from model_profiling.targets import Job, Outcome
from model_profiling.workflow.report import gather_report

TWO_COUNTS: list[Json] = [{**experiment, "threads": [1, 2]} for experiment in ON_AND_OFF]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, replayed once; tests copy it."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    replay(SME2, run_dir, TWO_COUNTS)
    return run_dir


def noisy(run_dir: Path) -> None:
    """Say of a run that its clock changed and that all its series are uncertain."""
    known = load(run_dir / "metrics.json")
    measured = [{key: each[key] for key in ("experiment", "threads")} for each in known["latencies"]]
    known["stability"] = [
        {"series": None, "code": "governor", "seen": "the CPU governor is ondemand", "advice": "set another"},
        *(
            {"series": series, "code": code, "seen": f"{code} of {{}}%", "advice": "wait", "numbers": [at]}
            for code in ("busy", "runs", "warmup")
            for at, series in enumerate(measured)
        ),
    ]
    edit(run_dir / "metrics.json", lambda metrics: metrics.update(known))


@pytest.fixture
def configured(finished: Path, tmp_path: Path) -> Path:
    """A finished run and the config that made it."""
    run_dir = Path(shutil.copytree(finished, tmp_path / "run"))
    config = make_config(run_dir, TWO_COUNTS).model_dump(mode="json")
    (tmp_path / CONFIG).write_text(json.dumps(config))
    return tmp_path / CONFIG


def test_thirteen_remarks_are_four_lines(configured: Path) -> None:
    run_dir = configured.parent / "run"
    noisy(run_dir)
    data = gather_report(run_dir)
    assert [line.kind for line in data.warnings] == ["governor", "busy", "runs", "warmup"]
    both = "; ".join(
        f"linux_sme2_{switch}, {threads}" for switch in ("on", "off") for threads in ("1 thread", "2 threads")
    )
    assert data.warnings[1].text == f"{both}: busy of 0 to 3%; wait"
    shown = lines(section(run_document(data), "How sure"))
    assert shown[: len(data.warnings)] == [line.text for line in data.warnings]


def test_summary_terminal_and_report_say_the_same_in_the_same_order(configured: Path, sme2prof) -> None:
    done = sme2prof("run", configured, "--analysis-only")
    assert done.ok, done.tail()
    run_dir = configured.parent / "run"
    short = next(run_dir.glob("*_pipeline_summary.md")).read_text().replace("\\", "")
    said = [line.strip().removeprefix("- ") for line in done.stdout.splitlines()]
    besides = ("Report: ", "Lowering: ", "Delegate: ")
    answers = [line for line in said if line and not line.endswith("?") and not line.startswith(besides)]
    assert len(answers) > 3 and all(line in short for line in answers)
    said = [line.removeprefix("warning: ") for line in done.stderr.splitlines() if "warning: " in line]
    summary = load(next(run_dir.glob("*_pipeline_summary.json")))
    assert said == summary["warnings"] == [line.text for line in gather_report(run_dir).warnings]
    assert [entry["text"] for entry in summary["warnings_by_kind"]] == said
    reported = json.loads(sme2prof("report", run_dir, "--json").stdout)
    assert load(run_dir / "analysis_summary.json")["warnings"] == reported["warnings"] == said
    kinds = [entry["kind"] for entry in summary["warnings_by_kind"]]
    assert len(set(kinds)) == len(kinds)


def test_quiet_prints_the_verdict_and_the_place_alone(configured: Path, sme2prof) -> None:
    loud = sme2prof("run", configured, "--analysis-only")
    quiet = sme2prof("run", configured, "--analysis-only", "--quiet")
    assert loud.stderr and not quiet.stderr
    asked = [line for line in quiet.stdout.splitlines() if line.endswith("?")]
    assert asked == [verdict.WHERE, verdict.SME2, verdict.NEXT]
    # The answers stand last; before them there is only what to know about them.
    assert loud.stdout.endswith(f"\n\n{quiet.stdout}") and loud.stdout.startswith("- ")
    *_, page = quiet.stdout.splitlines()
    assert page.startswith("Report: ") and page.endswith("report.html")


def test_quiet_still_says_what_failed(configured: Path, sme2prof) -> None:
    def fail(journal: Path) -> None:
        entries = [json.loads(line) for line in journal.read_text().splitlines()]
        for entry in entries:
            if entry["experiment"] == "linux_sme2_off":
                entry.update(state="failed", problem="the runner crashed", fix="look at its log")
        journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    fail(configured.parent / "run" / "journal.jsonl")
    done = sme2prof("run", configured, "--analysis-only", "--quiet")
    assert done.returncode == 2
    assert done.stderr == (
        "error: linux_sme2_off, 1 thread; linux_sme2_off, 2 threads: the runner crashed; look at its log\n"
    )


def test_a_failure_stands_before_every_doubt(tmp_path: Path) -> None:
    def crash(job: Job) -> None:
        if "sme2" in job.disable:
            raise RunError("the runner crashed", "look at its log")

    outcome = replay(ReplayTarget(SME2, before=crash), tmp_path / "run")
    assert outcome.warnings[0].kind == "failed"
    assert outcome.warnings[0].text == "linux_sme2_off: the runner crashed; look at its log"


class NotArm(ReplayTarget):
    """Says of features what the kit's runner says on a CPU that is not an Arm CPU, and on one that is."""

    def execute(self, job: Job, into: Path, stem: str) -> Outcome:
        outcome = super().execute(job, into, stem)
        return replace(outcome, result=replace(outcome.result, features_note="there are no Arm features"))


@pytest.mark.parametrize(("recorded", "said"), [(X86_64, 0), (ARM, 1)])
def test_arm_features_are_missed_only_where_they_could_be(recorded: Path, said: int, tmp_path: Path) -> None:
    outcome = replay(NotArm(recorded), tmp_path / "run")
    assert len([line for line in outcome.warnings if "CPU features" in line.text]) == said


@pytest.mark.parametrize("recorded", sorted(path.parent for path in DATA.rglob("manifest.json")))
def test_no_recorded_run_says_more_than_one_line_of_a_kind(recorded: Path) -> None:
    kinds = [line.kind for line in gather_report(recorded).warnings]
    assert len(set(kinds)) == len(kinds) <= 5
