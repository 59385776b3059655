"""The recorded runs: whole, replayed as they are; the answers that a page shows are those of its run."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import ARM, EMULATED, SME2, X86_64, assert_same_figures, emulated_experiments, load, replay
from replay import ReplayTarget

from model_profiling.cli.main import main
from model_profiling.runs.journal import Journal
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse, write_analysis

pytestmark = pytest.mark.quick
RUNS = {path.name: path for path in (ARM, EMULATED, X86_64, SME2)}
# Written of what was measured; the code of the day writes them again.
DERIVED = {"analysis"}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_measured_is_whole(name: str, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(RUNS[name], tmp_path / name))
    wrong = {check.name: check.found for check in validate(run_dir).checks if check.status == "fail"}
    assert not wrong.keys() - DERIVED, wrong
    write_analysis(analyse(run_dir))
    assert validate(run_dir).ok, validate(run_dir).as_text()


@pytest.mark.parametrize("name", RUNS)
def test_a_replay_measures_what_was_recorded(name: str, tmp_path: Path) -> None:
    recorded = RUNS[name]
    experiments = {"experiments": emulated_experiments()} if name == EMULATED.name else {}
    target = ReplayTarget(recorded)
    run_dir = replay(target, tmp_path / "run", **experiments).run_dir
    before, after = Journal(recorded), Journal(run_dir)
    assert len(target.jobs) == len(after.entries())
    for entry in after.entries():
        (same,) = [found for found in before.entries() if found.step == entry.step]
        for fact in ("turns_ns", "kernels", "features_present", "kernels_note"):
            assert getattr(entry, fact) == getattr(same, fact)
        if entry.etdump:
            assert (run_dir / entry.etdump).read_bytes() == (recorded / str(same.etdump)).read_bytes()
    kept = load(recorded / "metrics.json")["latencies"]
    known = {found["experiment"]: found for found in kept if found["threads"] == 1}
    for found in load(run_dir / "metrics.json")["latencies"]:
        assert_same_figures(found["end_to_end_ms"], known[found["experiment"]]["end_to_end_ms"])


def test_a_replay_may_be_another_machine(tmp_path: Path) -> None:
    facts = replace(ReplayTarget(SME2).facts(), cpu="Apple M4", features=("fp16", "sme", "sme2"))
    made = replay(ReplayTarget(SME2, facts, "mac"), tmp_path / "mac", schedule={"rounds": 3})
    assert made.run.platform == "mac" and made.data.cpu == "Apple M4" and made.data.has_sme2
    masked = {result.experiment: result.features_masked for result in made.run.results}
    assert masked == {"linux_sme2_on": (), "linux_sme2_off": ("sme2", "sme")}
    (pair,) = made.data.pairs
    assert pair.speedup.verdict is Verdict.FASTER
    none = replay(ReplayTarget(SME2, replace(facts, features=())), tmp_path / "none", schedule={"rounds": 3})
    assert not none.data.pairs and none.data.has_sme2 is False


ROOT = Path(__file__).resolve().parents[1]


def test_the_answers_that_a_page_shows_are_those_of_the_run_in_its_pictures(capsys, tmp_path: Path) -> None:
    assert main(["report", str(shutil.copytree(SME2, tmp_path / "run"))]) == 0
    printed = capsys.readouterr().out
    page = (ROOT / "docs/reference/report.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\n(Where does .*?)^```", page, re.DOTALL | re.MULTILINE)
    assert shown == printed[printed.index("Where does") : printed.index("wrote ")]
