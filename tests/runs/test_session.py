"""Sessions: what was measured is on disk, and nothing is measured twice wherever a run is continued."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import EMULATED, PROGRAM, SME2, emulated_experiments, make_config, pair
from replay import ReplayTarget
from said import says

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.core.stdio import Lines, counted, watching
from model_profiling.report.data import report_data
from model_profiling.runs import Run
from model_profiling.runs.begin import Start, reopen
from model_profiling.runs.feeding import checked_feed
from model_profiling.runs.figures import Measured, concluded
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import Manifest, read_manifest
from model_profiling.runs.measure import measure_runs
from model_profiling.runs.schedule import emulated_seconds
from model_profiling.targets import Job, MachineFacts
from model_profiling.validation.validate import validate

PAIR = [pair("linux_sme2_off", "linux_sme2_on", "SME2")]
GONE = SetupError("android:R5 was lost and did not come back", "see to its cable")


class CountedTarget(ReplayTarget):
    """Counts how often it is made ready, and has settings to put back."""

    def __init__(self, recorded: Path = SME2, before: Callable[[Job], None] = lambda _job: None) -> None:
        super().__init__(recorded, before=before)
        self.did: list[str] = []

    def prepare(self) -> None:
        self.did.append("prepare")

    def facts(self) -> MachineFacts:
        self.did.append("facts")
        return super().facts()

    @contextlib.contextmanager
    def held_ready(self) -> Iterator[None]:
        self.did.append("set")
        try:
            yield
        finally:
            self.did.append("put back")

    def take_notes(self) -> tuple[str, ...]:
        said = ("its screen was left on",) if self.did[-1:] == ["put back"] else ()
        self.did += ["told"] if said else []
        return said


def manifest_of(run_dir: Path) -> Manifest:
    found = read_manifest(run_dir)
    assert found is not None
    return found


def measure(config: ProfileConfig, target: ReplayTarget, **start: Any) -> Measured:
    (done,) = measure_runs([config], target, Start(**start))
    return done


def dying_at(number: int, reason: BaseException = GONE) -> Callable[[Job], None]:
    """What happens before a job: the target dies at this one."""
    jobs: list[Job] = []

    def count(job: Job) -> None:
        jobs.append(job)
        if len(jobs) == number:
            raise reason

    return count


def test_after_each_process_or_launch_its_results_are_on_disk(tmp_path: Path) -> None:
    run_dir, known = tmp_path / "run", []

    def look(_job: Job) -> None:
        entries = Journal(run_dir).entries()
        manifest = manifest_of(run_dir)
        assert manifest.state == "running"
        assert sum(result.processes for result in manifest.results) in (len(entries), len(entries) - 2)
        known.append(len(entries))

    found = measure(make_config(run_dir, pairs=PAIR), ReplayTarget(SME2, before=look))
    assert known[:3] == [0, 1, 2] and len(found.journal.entries()) == 2 + 6 * 4
    assert concluded(found).state == "finished" and not (run_dir / names.WORK).exists()


def test_a_program_for_a_backend_that_is_not_there_is_refused_before_anything_is_prepared(tmp_path) -> None:
    program = tmp_path / "for_a_mac.pte"
    program.write_bytes(PROGRAM.read_bytes().replace(b"XnnpackBackend", b"CoreMLBackend\0"))
    target = CountedTarget()
    with pytest.raises(InputError) as refused:
        measure(make_config(tmp_path / "runs" / "run", program=program), target)
    says(str(refused.value), "for_a_mac.pte", "CoreMLBackend", "xnnpack or portable", "runner_path")
    assert not target.did and not (tmp_path / "runs").exists()
    own = [{"name": "own", "runner_path": sys.executable}]  # a runner of the user's may have it
    checked_feed(make_config(tmp_path / "run", own, program=program))


@pytest.mark.parametrize("job", [1, 2, 4, 20])
def test_it_goes_on_elsewhere_after_any_job(tmp_path: Path, job: int) -> None:
    """The folder, and the program, lie somewhere else now."""
    whole = measure(make_config(tmp_path / "whole"), ReplayTarget(SME2))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    program = Path(shutil.copy(PROGRAM, here))
    with pytest.raises(SetupError):
        measure(make_config(here / "run", program=program), ReplayTarget(SME2, before=dying_at(job)))
    done = len(Journal(here / "run").entries())
    shutil.copytree(here, there)
    moved = make_config(there / "run", program=there / program.name)
    found = measure(moved, second := ReplayTarget(SME2))
    whole_rounds = done if done < 2 else done - (done - 2) % 4
    assert len(second.jobs) == 2 + 6 * 4 - whole_rounds, "nothing twice but a round that was cut short"
    assert len(found.journal.entries()) == len(whole.journal.entries())
    assert [session.end for session in found.manifest.sessions] == ["SetupError", "done"][not done :]
    (there / program.name).unlink()  # whoever has the directory goes on from here
    again = reopen(moved)
    assert again.metrics == found.metrics and concluded(again).state == "finished"


def test_another_machine_does_not_go_on(tmp_path: Path) -> None:
    config = make_config(tmp_path / "run")
    with pytest.raises(SetupError):
        measure(config, ReplayTarget(SME2, before=dying_at(4)))
    other = ReplayTarget(SME2, machine=MachineFacts(cpu="M4"))
    with pytest.raises(InputError, match="cannot be continued"):
        measure(config, other, resume=True)
    assert len(Journal(tmp_path / "run").entries()) == 2
    assert measure(config, other).moved is not None


def test_a_machine_that_is_gone_leaves_its_reason_and_gets_its_settings_back(tmp_path: Path) -> None:
    target = CountedTarget(before=dying_at(8))
    with pytest.raises(SetupError):
        measure(make_config(tmp_path / "run"), target)
    assert [word for word in target.did if word != "facts"] == ["prepare", "set", "put back", "told"]
    manifest = manifest_of(tmp_path / "run")
    assert manifest.state == "interrupted" and manifest.why_unfinished == manifest.sessions[-1]
    assert (manifest.sessions[-1].problem, manifest.sessions[-1].fix) == (GONE.problem, GONE.fix)
    assert [remark.seen for remark in manifest.warnings] == ["its screen was left on"]
    said = [line.text for line in report_data(Run.open(tmp_path / "run"), None).warnings]
    assert any(re.search(f"interrupted.*{GONE.problem}.*{GONE.fix}", line) for line in said)
    (state,) = (check for check in validate(tmp_path / "run").checks if check.name == "state")
    assert GONE.problem in state.found
    found = measure(make_config(tmp_path / "run"), target)
    assert concluded(found).why_unfinished is None and concluded(found).state == "finished"


def test_a_program_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    def crash(job: Job) -> None:
        if job.disable:
            raise RunError("the runner crashed", "look at its log")

    found = measure(make_config(tmp_path / "run"), ReplayTarget(SME2, before=crash))
    assert {result.problem for result in found.failed} == {"the runner crashed"}
    assert found.journal.rounds_of(Series("linux_sme2_on", 1)) == 6, "the other one goes on"
    assert concluded(found).state == "failed"


def test_progress_names_the_program_and_says_how_long_emulation_takes(tmp_path: Path, capfd) -> None:
    config = make_config(tmp_path / "emulated", emulated_experiments(), target={"name": "emulated"})
    with watching(Lines()):
        measure_runs([config], ReplayTarget(EMULATED), Start())
    _, begun, ended = capfd.readouterr().err.splitlines()
    about = round(2 * emulated_seconds(PROGRAM))
    assert begun == f"emulating {PROGRAM.stem} (about {about} s)" and about >= 2
    assert ended == f"{begun} 2/2"
    copy = Path(shutil.copy(PROGRAM, tmp_path / PROGRAM.name.replace("fp16", "fp32")))
    asked = [make_config(tmp_path / each.stem, program=each) for each in (PROGRAM, copy)]
    with watching(Lines()):
        measure_runs(asked, ReplayTarget(SME2), Start())
    said = capfd.readouterr().err
    says(said, f"gathering evidence: {PROGRAM.stem}\n", f"gathering evidence: {copy.stem}\n")
    says(said, f"measuring {PROGRAM.stem} and {copy.stem} in turns\n")
    assert counted(time.monotonic() - 6, 3, 9, "a step") == "3/9, about 12 s left: a step"


def test_a_failed_evidence_is_tried_again_by_the_next_session_only(tmp_path: Path) -> None:
    def crash(job: Job) -> None:
        if job.kernels and not job.disable:
            raise RunError("the runner crashed", "look at its log")

    config = make_config(tmp_path / "run")
    measure(config, ReplayTarget(SME2, before=crash))
    assert concluded(measure(config, target := ReplayTarget(SME2), resume=True)).state == "finished"
    assert [job.kernels for job in target.jobs] == [True]
