"""What each kind of machine is told: an Arm CPU with SME2, one without, one that is no Arm CPU.

On and off are said only of a CPU that has SME2, real or emulated; what was not tested says so, why, and what
to do next, in the first lines, in the report and in the JSON files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import ARM, EMULATED, PROGRAM, RUNS, SME2, X86_64, Json, load, replay
from replay import ReplayTarget
from said import says

from model_profiling.core.errors import InputError, SetupError
from model_profiling.report.verdict import NEXT, WHERE, answers
from model_profiling.report.verdict import SME2 as SME2_CHANGES
from model_profiling.runs.schedule import emulated_seconds
from model_profiling.targets import TargetChoice, TargetPlan
from model_profiling.workflow.measure import RunOutcome
from model_profiling.workflow.profile import ProfileOptions, ProfileOutcome, profile_one
from model_profiling.workflow.report import gather_report

HOST, QEMU = TargetChoice("host"), TargetChoice("emulated")
PLANS = {
    SME2: TargetPlan(HOST, HOST, "has SME2"),
    ARM: TargetPlan(HOST, QEMU, "has none"),
    X86_64: TargetPlan(QEMU, QEMU, "is not Arm"),
}
JOURNAL = EMULATED / "journal.jsonl"
NAMED_ELSEWHERE = ("stands_for", "measured_once", "evidence")
Profiled = Callable[..., ProfileOutcome]


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiled:
    """`sme2prof profile` as on the machine that was recorded; `broken` is why it has no emulation."""

    def make(
        recorded: Path, target: str = "auto", broken: SetupError | None = None, **more: object
    ) -> ProfileOutcome:
        def opened(choice: TargetChoice) -> ReplayTarget:
            return ReplayTarget(EMULATED, unprepared=broken) if choice == QEMU else ReplayTarget(recorded)

        monkeypatch.setattr("model_profiling.workflow.profile.open_target", opened)
        monkeypatch.setattr(
            "model_profiling.workflow.profile.plan_targets",
            lambda choice: PLANS[recorded] if choice.name == "auto" else TargetPlan(choice, choice, "asked"),
        )
        where = TargetChoice(target)  # type: ignore[arg-type]
        options = ProfileOptions(target=where, runs=RUNS, outdir=tmp_path / "out", **more)  # type: ignore[arg-type]
        return profile_one(str(PROGRAM), options)

    return make


def everything_said(outcome: RunOutcome) -> dict[str, str]:
    """Every text a person or a program reads of a run, the recorded journal left out."""
    texts = [*outcome.run_dir.glob("*.md"), *outcome.run_dir.glob("*.json")]
    return {path.name: path.read_text() for path in texts} | {"verdict": "\n".join(outcome.verdict)}


def own_words(text: str) -> str:
    """A JSON file without what the config called the experiments, and what the emulated CPU did."""
    content = json.loads(text)
    return json.dumps({key: content[key] for key in content if key not in NAMED_ELSEWHERE})


def stated(run_dir: Path) -> list[list[Json]]:
    """What the JSON files call not tested."""
    summary = next(run_dir.glob("*_pipeline_summary.json"))
    return [load(path)["not_tested"] for path in (summary, run_dir / "analysis_summary.json")]


def test_an_arm_cpu_without_sme2_opens_with_baseline_headroom_and_bottleneck(profiled: Profiled) -> None:
    done = profiled(ARM)
    main = done.main
    assert [result.experiment for result in main.run.results] == ["linux_baseline"]
    told = main.answers
    assert re.match(r"1\.\d+ ms .*\(1 thread\)\.", told.where_time_goes)
    assert re.search(r"Convolution .*\(7\d\.\d%\)", told.where_time_goes)
    # A projection comes first and is called one; what emulation proved is said beside it.
    said = told.what_sme2_changes
    assert re.match(r"Projected.* about \d\.\dx to \d\.\dx .*emulation.* 5 of 5 matrix operators", said)
    assert load(main.run_dir / "analysis_summary.json")["sme2_headroom"]["kind"] == "projection"
    opening = (main.run_dir / "report.md").read_text().split("\n\n")[1:4]
    asked = zip((WHERE, SME2_CHANGES, NEXT), main.verdict, strict=False)
    assert opening == [f"**{question}** {answer}" for question, answer in asked]
    (question,) = main.data.not_tested
    assert question.next in told.what_next and not any(question.next in note for note in told.notes)
    assert "Neoverse-N1" in question.because and "run `sme2prof profile" in question.next


def test_without_sme2_nothing_is_called_on_or_off(profiled: Profiled) -> None:
    for name, text in everything_said(profiled(ARM).main).items():
        if name == "evidence.json":
            continue
        # The evidence of the emulated CPU, which has SME2, names on and off.
        said = re.sub(r"emulated_sme2_(on|off)", "", own_words(text) if name.endswith(".json") else text)
        assert not re.search(r"sme2_(on|off)\b|SME2 (was )?(on|off)\b", said), name


def test_threads_auto_are_powers_of_two_up_to_the_cores(profiled: Profiled) -> None:
    series = [(result.experiment, result.threads) for result in profiled(ARM, threads=()).main.run.results]
    assert series == [("linux_baseline", 1), ("linux_baseline", 2)]
    with pytest.raises(InputError, match="do not say how many threads to use; name the number of threads"):
        profiled(EMULATED, "emulated", threads=())


def test_an_hour_of_emulation_is_not_begun_unasked(profiled: Profiled, monkeypatch) -> None:
    monkeypatch.setattr("model_profiling.workflow.profile.emulated_seconds", lambda *_program: 1260.0)
    done = profiled(ARM)
    assert done.evidence is None
    told = done.main.answers
    assert re.fullmatch(r"SME2 kernels: not tested.* 42 min 0 s\.", told.what_sme2_changes)
    assert re.search(r"smaller input.*sme2prof profile .*--target emulated", told.what_next)
    assert profiled(X86_64).evidence is not None  # where it is all there is, it runs


def test_what_quick_skips_is_told_with_the_command_that_shows_it(profiled: Profiled, monkeypatch) -> None:
    monkeypatch.setattr("model_profiling.workflow.profile.emulated_seconds", lambda *_program: 37.0)
    told = profiled(ARM, quick=True).main.answers
    skipped = "SME2 kernels: not tested, because --quick skips the emulation, about 37 s here."
    assert told.what_sme2_changes == skipped
    assert re.search(r"To see what runs on SME2: `sme2prof profile \S+ --target emulated`\.", told.what_next)


def test_how_long_emulation_takes_is_said_before_it_begins(profiled: Profiled, monkeypatch) -> None:
    stages: list[str] = []
    monkeypatch.setattr("model_profiling.core.stdio.Progress.stage", lambda _self, text: stages.append(text))
    profiled(X86_64)
    assert stages and not any(" min " in stage for stage in stages)  # seconds
    stages.clear()
    monkeypatch.setattr("model_profiling.runs.measuring.emulated_seconds", lambda *_program: 1260.0)
    profiled(X86_64)
    assert any(" 42 min " in stage for stage in stages)


def test_past_its_budget_a_slow_model_is_told_how_many_launches_it_needs(profiled, monkeypatch) -> None:
    shown: list[tuple[int, int, str]] = []
    monkeypatch.setattr("model_profiling.core.stdio.Progress.advance", lambda _, *step: shown.append(step))
    monkeypatch.setattr("model_profiling.runs.measure.seconds_of", lambda _entries: 7700.0)
    profiled(SME2)
    measuring = [step for step in shown if "launch" in str(step[2:])]
    assert measuring[0][0] == 1 < measuring[0][1]
    assert measuring[0][2] == f"launch 1 of {measuring[0][1]}, 7700 s"


def test_the_estimate_is_near_what_emulation_took() -> None:
    took = [entry["iterations_ns"][0] / 1e9 for entry in map(json.loads, JOURNAL.read_text().splitlines())]
    assert min(took) / 2 < emulated_seconds(PROGRAM) < 2 * max(took)


def test_without_emulation_the_reason_and_the_cure_stand_in_the_first_lines(profiled: Profiled) -> None:
    broken = SetupError("the Debian mirror cannot be read", "install qemu-user 10.1")
    done = profiled(ARM, broken=broken)
    assert done.evidence is None and len(done.runs) == 1
    told, report = done.main.answers, (done.main.run_dir / "report.md").read_text()
    says(told.what_sme2_changes, "SME2 kernels: not tested", broken.problem)
    assert re.search(rf"{broken.fix}.*sme2prof profile", told.what_next)
    says(report, told.what_sme2_changes, told.what_next)
    for found in stated(done.main.run_dir):
        assert found[0]["because"] == broken.problem and found[0]["next"].startswith(broken.fix)
    coverage = load(done.main.run_dir / "analysis_summary.json")["sme2_coverage"]
    assert (coverage["reason"], coverage["next"]) == (found[0]["because"], found[0]["next"])
    assert coverage["evidence"] == "not tested"
    again = profiled(ARM)
    assert again.main.run.evidence is not None and not again.main.run.evidence.problem


def test_an_emulated_run_made_later_answers_the_earlier_one(profiled: Profiled) -> None:
    early = profiled(ARM, broken=SetupError("no network", "connect it")).main
    assert len(early.data.not_tested) == 2
    profiled(ARM, "emulated")
    (left,) = gather_report(early.run_dir).not_tested
    assert left.what == "What SME2 changes in latency"


def test_a_cpu_that_is_no_arm_cpu_is_emulated_and_gives_no_latency(profiled: Profiled) -> None:
    done = profiled(X86_64)
    assert done.runs == (done.main.data,) and done.main.run_dir.name == "emulated"
    text = " ".join(done.main.verdict)
    says(text, "5 of 5 matrix operators", "100.0% of the matrix arithmetic", "latency: not tested")
    assert [question.what for question in done.main.data.not_tested] == ["What SME2 changes in latency"]
    assert not any(re.search(r"\d ms\b", said) for said in everything_said(done.main).values())


def test_its_own_latencies_say_that_they_say_nothing_about_arm(profiled: Profiled) -> None:
    done = profiled(X86_64, "host")
    says(done.main.verdict[0], "nothing about Arm", "made x86_64 CPU")
    report = (done.main.run_dir / "report.md").read_text()
    assert "nothing about Arm" in report.split("## Latency")[1]
    for found in stated(done.main.run_dir):
        assert [question["what"] for question in found] == ["SME2 kernels", "What SME2 changes in latency"]
        assert all("not an Arm CPU" in question["because"] for question in found)
    summary = load(done.main.run_dir / "analysis_summary.json")
    assert summary["sme2_headroom"] is None and "Arm" in summary["headroom_reason"]
    assert not [finding for finding in summary["findings"] if finding["max_gain_pct"]]


def test_a_cpu_with_sme2_leaves_nothing_open(profiled: Profiled) -> None:
    done = profiled(SME2)
    assert [result.sme2 for result in done.main.run.results] == ["on", "off"]
    assert not done.main.data.not_tested and stated(done.main.run_dir) == [[], []]
    told = done.main.answers
    assert re.match(r"2\.\d\dx .*: 1\.\d+ ms without SME2, 0\.\d+ ms with", told.what_sme2_changes)
    assert "(linux_sme2_on, 1 thread)" in told.where_time_goes
    assert "at most" in told.what_next and "small_cnn.py:2" in told.what_next


def test_a_shipped_config_runs_once_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    outcome = replay(ARM, tmp_path / "run")
    assert "measured once" not in " ".join(outcome.verdict), "it was not written by a person"
    manifest = outcome.run_dir / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"config_file": null', f'"config_file": "{config}"'))
    data = gather_report(outcome.run_dir)
    (note,) = (note for note in answers(data).notes if "measured once" in note)
    says(note, "linux_sme2_on", "linux_sme2_off", "linux_baseline", "Neoverse-N1")
    found = load(next(outcome.run_dir.glob("*_pipeline_summary.json")))["measured_once"]
    assert found == [{"experiment": "linux_baseline", "names": ["linux_sme2_on", "linux_sme2_off"]}]
