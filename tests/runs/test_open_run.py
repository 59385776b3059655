"""Runs measured piece by piece: each piece is on disk, nothing is measured twice wherever it is continued,
and several share one machine without one's trouble being the others'."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorded_runs import (
    EMULATED,
    ON_AND_OFF,
    PROGRAM,
    SME2,
    emulated_experiments,
    make_config,
    pair,
)
from replay import ReplayTarget
from said import says

from model_profiling.config import names
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.core.progress import Lines, counted
from model_profiling.report import html
from model_profiling.report.data import report_data
from model_profiling.runs import Run
from model_profiling.runs.begin import Start, checked_feed
from model_profiling.runs.figures import conclude, reopen
from model_profiling.runs.journal import Entry, Journal
from model_profiling.runs.manifest import Manifest, read_manifest
from model_profiling.runs.open_run import OpenRun, ReadyTarget, open_run
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


def measured(entry: Entry) -> tuple[object, ...]:
    return entry.step, entry.state, entry.turns_ns, entry.kernels, entry.etdump


def to_the_end(run: OpenRun) -> list[str]:
    done = []
    while piece := run.step():
        done.append(f"{piece.kind}: {piece.what}")
    return done


def test_every_piece_is_on_disk_and_together_they_are_the_run(tmp_path: Path) -> None:
    with open_run(make_config(tmp_path / "whole", pairs=PAIR), ReplayTarget(SME2)) as run:
        (whole,) = run.measure()
    run_dir = tmp_path / "run"
    with open_run(make_config(run_dir, pairs=PAIR), ReplayTarget(SME2)) as run:
        assert run.left().steps == (2 + 6, 2 + 6) and not run.left().nothing
        done, known = [], 0
        while piece := run.step():
            entries = Journal(run_dir).entries()
            assert len(entries) == known + (1 if piece.kind == "evidence" else 4), "each series, traced too"
            known = len(entries)
            manifest = manifest_of(run_dir)
            assert manifest.state == "running"
            assert sum(result.processes for result in manifest.results) == known
            assert not list(run_dir.glob(f"{names.WORK}/*"))
            done.append(piece.kind)
            assert run.left().steps == (8 - len(done), 8 - len(done))
        assert done == ["evidence"] * 2 + ["launch"] * 6
        assert run.left().nothing and run.step() is None
        with pytest.raises(InputError, match="in use by another run"):
            open_run(make_config(run_dir), ReplayTarget(SME2), Start(resume=True))
        found = run.finish()
    ours, theirs = (list(map(measured, each.journal.entries())) for each in (found, whole))
    assert ours == theirs
    assert found.metrics.comparisons == whole.metrics.comparisons
    assert conclude(found).manifest.state == "finished"
    with pytest.raises(AssertionError, match="open it again"):
        run.step()


def test_a_program_for_a_backend_that_is_not_there_is_refused_before_anything_is_prepared(tmp_path) -> None:
    program = tmp_path / "for_a_mac.pte"
    program.write_bytes(PROGRAM.read_bytes().replace(b"XnnpackBackend", b"CoreMLBackend\0"))
    target = CountedTarget()
    with pytest.raises(InputError) as refused:
        open_run(make_config(tmp_path / "runs" / "run", program=program), target)
    says(str(refused.value), "for_a_mac.pte", "CoreMLBackend", "xnnpack or portable", "runner_path")
    assert not target.did and not (tmp_path / "runs").exists()
    own = [{"name": "own", "runner_path": sys.executable}]  # a runner of the user's may have it
    checked_feed(make_config(tmp_path / "run", own, program=program))


@pytest.mark.parametrize("steps", [0, 1, 3, 7])
def test_it_goes_on_elsewhere_after_any_piece(tmp_path: Path, steps: int) -> None:
    """The one who measured is gone without a word; the folder, and the program, lie somewhere else now."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    program = Path(shutil.copy(PROGRAM, here))
    lost = open_run(make_config(here / "run", program=program), first := ReplayTarget(SME2))
    for _ in range(steps):
        assert lost.step()
    shutil.copytree(here, there)
    moved = make_config(there / "run", program=there / program.name)
    with open_run(moved, second := ReplayTarget(SME2), Start(resume=True)) as run:
        assert run.left().steps == (8 - steps, 8 - steps)
        assert len(to_the_end(run)) == 8 - steps
        found = run.finish()
    assert len(first.jobs) + len(second.jobs) == 2 + 6 * 4, "nothing twice"
    assert [session.end for session in found.manifest.sessions] == ["killed", "done"][not steps :]
    (there / program.name).unlink()  # whoever has the directory goes on from here
    again = conclude(reopen(moved))
    assert again.metrics == found.metrics and again.manifest.state == "finished"
    lost.close()


def test_another_machine_does_not_go_on(tmp_path: Path) -> None:
    config = make_config(tmp_path / "run")
    with open_run(config, ReplayTarget(SME2)) as run:
        run.step()
    assert manifest_of(tmp_path / "run").sessions[-1].end == "put aside"
    with pytest.raises(InputError, match=r"cannot be continued: .*CPU.*\bM4\b"):
        open_run(config, ReplayTarget(SME2, machine=MachineFacts(cpu="M4")), Start(resume=True))
    with open_run(config, ReplayTarget(SME2), Start(resume=True)) as run:
        assert len(to_the_end(run)) == 7


def test_several_runs_share_a_machine_that_is_made_ready_once(tmp_path: Path) -> None:
    failing = False

    def crash(job: Job) -> None:
        if failing and job.disable:
            raise RunError("the runner crashed", "look at its log")

    target, left, visits = CountedTarget(before=crash), list("abc"), []
    with ReadyTarget(target) as ready:
        runs = {name: open_run(make_config(tmp_path / name), ready) for name in "abc"}
        assert target.did.count("facts") == 1
        while left:
            left.append(name := left.pop(0))
            failing = name == "b"
            visits.append((name, runs[name].step().kind))
            if visits[-1:] == [("c", "launch")] and len(visits) > 15:
                runs["c"].give_up(InputError("the disk is full", "free some space"))
            if runs[name].left().nothing:
                left.remove(name)
        assert [kind for _, kind in visits[:6]] == ["evidence"] * 6, "nobody times before all have it"
        found = {name: conclude(runs[name].finish()) for name in "ab"}
        assert "put back" not in target.did
    assert [word for word in target.did if word != "facts"] == ["prepare", "set", "put back"]
    assert found["a"].manifest.state == "finished" and not found["a"].failed
    assert [result.problem for result in found["b"].failed] == ["the runner crashed"]
    assert found["b"].journal.rounds_of(found["a"].manifest.results[0].series) == 6, "the other one goes on"
    last = manifest_of(tmp_path / "c").sessions[-1]
    assert (last.end, last.problem, last.fix) == ("InputError", "the disk is full", "free some space")
    for name in "ab":
        runs[name].close()
    with open_run(make_config(tmp_path / "c"), target, Start(resume=True)) as run:
        to_the_end(run)
        assert [remark.seen for remark in run.finish().manifest.warnings] == ["its screen was left on"]


def test_a_machine_that_is_gone_leaves_its_reason_in_every_run_on_it(tmp_path: Path) -> None:
    def lose(_job: Job) -> None:
        if gone:
            raise GONE

    gone = False
    ready = ReadyTarget(CountedTarget(before=lose))
    one, other = (open_run(make_config(tmp_path / name), ready) for name in ("one", "other"))
    for run in (one, other):
        assert run.step() and run.step() and run.step()
    gone = True
    with pytest.raises(SetupError) as lost:
        one.step()
    ready.give_up(lost.value)
    for name in ("one", "other"):
        manifest = manifest_of(tmp_path / name)
        assert manifest.state == "interrupted" and manifest.why_unfinished == manifest.sessions[-1]
        assert (manifest.sessions[-1].problem, manifest.sessions[-1].fix) == (GONE.problem, GONE.fix)
        said = [line.text for line in report_data(Run.open(tmp_path / name), None).warnings]
        assert any(re.search(f"interrupted.*{GONE.problem}.*{GONE.fix}.*--resume", line) for line in said)
        (state,) = (check for check in validate(tmp_path / name).checks if check.name == "state")
        assert GONE.problem in state.found
    gone = False
    with open_run(make_config(tmp_path / "one"), ready.target, Start(resume=True)) as run:
        assert len(to_the_end(run)) == 5
        assert conclude(run.finish()).manifest.why_unfinished is None


def test_what_is_left_is_told_ahead(tmp_path: Path) -> None:
    config = make_config(tmp_path / "emulated", emulated_experiments(), target={"name": "emulated"})
    with open_run(config, ReplayTarget(EMULATED)) as run:
        left = run.left()
        assert left.steps == (2, 2) and left.launches.most == 0 and 0 < left.seconds_at_most < 60
        assert to_the_end(run) == [f"evidence: emulated_sme2_{switch}, 1 thread" for switch in ("on", "off")]
    budget = make_config(tmp_path / "budget", ON_AND_OFF, pairs=PAIR, schedule={"seed": 3, "budget_s": 20})
    with open_run(budget, ReplayTarget(SME2)) as run:
        assert (run.left().launches.least, run.left().launches.most) == (6, 60)
        assert run.left().seconds_at_most == 20
        to_the_end(run)
        assert run.left().nothing and run.left().seconds_at_most == 0


def test_progress_names_the_program_and_says_how_long_emulation_takes(tmp_path: Path, capfd) -> None:
    config = make_config(tmp_path / "emulated", emulated_experiments(), target={"name": "emulated"})
    with open_run(config, ReplayTarget(EMULATED), progress=Lines()) as run:
        to_the_end(run)
    _, begun, ended = capfd.readouterr().err.splitlines()
    about = round(2 * emulated_seconds(PROGRAM))
    assert begun == f"emulating {PROGRAM.stem} (about {about} s)" and about >= 2
    assert ended == f"{begun} 2/2"
    copy = Path(shutil.copy(PROGRAM, tmp_path / PROGRAM.name.replace("fp16", "fp32")))
    asked = [(make_config(tmp_path / each.stem, program=each), Start()) for each in (PROGRAM, copy)]
    with OpenRun(asked, ReplayTarget(SME2), Lines()) as run:
        to_the_end(run)
    said = capfd.readouterr().err
    says(said, f"gathering evidence: {PROGRAM.stem}\n", f"gathering evidence: {copy.stem}\n")
    says(said, "measuring xnnpack_fp16 and xnnpack_fp32 in turns\n")
    assert counted(time.monotonic() - 6, 3, 9, "a step") == "3/9, about 12 s left: a step"


def test_a_failed_evidence_is_tried_again_by_the_next_session_only(tmp_path: Path) -> None:
    def crash(job: Job) -> None:
        if job.kernels and not job.disable:
            raise RunError("the runner crashed", "look at its log")

    config = make_config(tmp_path / "run")
    with open_run(config, ReplayTarget(SME2, before=crash)) as run:
        assert len(to_the_end(run)) == 8 and run.left().nothing
    with open_run(config, ReplayTarget(SME2), Start(resume=True)) as run:
        assert run.left().steps == (1, 1)
        assert to_the_end(run) == ["evidence: linux_sme2_on, 1 thread"]


def test_a_page_is_made_without_the_cache_too(tmp_path: Path, monkeypatch) -> None:
    """A page needs the script that draws charts, which the cache keeps."""
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(html, "_put_together", lambda: "draw()")  # takes seconds
    assert html.vega_script() == "draw()"
    (kept,) = (tmp_path / "cache/vega").glob("*/vega.js")
    (tmp_path / "cache").chmod(0o777)
    kept.write_text("steal()")
    assert html.vega_script() == "draw()"
