"""Who may begin in a run directory: runs are continued, added to or kept; locks; leftovers."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused

from model_profiling.config.names import RunFiles
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, InUseError
from model_profiling.core.records import JsonObject, write_record
from model_profiling.runs import Manifest, Times
from model_profiling.runs.begin import check_startable, settle_earlier
from model_profiling.runs.folders import locked
from model_profiling.runs.journal import Entry, Journal
from model_profiling.runs.manifest import (
    ExecuTorch,
    Machine,
    Runner,
    ScheduleFacts,
    Session,
    State,
    TargetFacts,
)
from model_profiling.runs.measuring import scratch_folder
from model_profiling.targets import MachineFacts


def settings(*experiments: str, mode: str = "timing", runs: int = 10, seed: int | None = None) -> JsonObject:
    listed = [{"name": name, "mode": mode, "runs": runs} for name in experiments]
    return {"experiments": listed, "schedule": {"seed": seed, "rounds": 4}, "inputs": {"seed": 0}}


HEAD = Manifest(
    model_sha256="aa",
    target=TargetFacts("host", "linux", Times.HARDWARE),
    executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"),
    machine=Machine(MachineFacts(cpu="N1")),
    sessions=(Session(1, (), "2026-01-02T03:04:05+0000"),),
    settings=settings("on", "off"),
    schedule=ScheduleFacts(seed=1),
    state="running",
    results=(),
)
TRACE = replace(HEAD, settings=settings("trace", mode="xnntrace"))
OTHERS = {
    "model_sha256": "bb",
    "method": "other",
    "target": TargetFacts("host", "mac", Times.HARDWARE),
    "executorch": ExecuTorch("1.6"),
    "runner": Runner("b2"),
    "machine": Machine(MachineFacts(cpu="M4")),
}
CHANGED = {
    **{name: replace(HEAD, **{name: value}) for name, value in OTHERS.items()},  # type: ignore[arg-type]
    "more runs": replace(HEAD, settings=settings("on", "off", runs=20)),
    "fewer experiments": replace(HEAD, settings=settings("on")),
    "more experiments": replace(HEAD, settings=settings("on", "off", "neither")),
    "another seed": replace(HEAD, settings=settings("on", "off", seed=2)),
    "other inputs": replace(HEAD, settings={**HEAD.settings, "inputs": {"seed": 1}}),
}


def earlier_run(run_dir: Path, state: State, *, ended: str = "running", measured: bool = True) -> Manifest:
    """A run of `HEAD` in `run_dir`."""
    manifest = replace(HEAD, state=state, sessions=(replace(HEAD.sessions[0], end=ended),))
    write_record(run_dir / "manifest.json", manifest)
    files.write_text(run_dir / "on" / "kept.txt", "kept")
    if measured:
        Journal(run_dir).append(Entry("untraced", "on", 1, 0, 1, "done", "2026-01-02T03:04:05+0000", 0.5))
    return manifest


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("state", ["finished", "failed"])
def test_an_ended_run_is_kept_whole_under_its_date_and_time(tmp_path, state, force):
    run_dir = tmp_path / "linux"
    for name in ("linux-20260102-030405", "linux-20260102-030405-2"):
        earlier_run(run_dir, state, ended="done")
        assert settle_earlier(run_dir, HEAD, resume=False, force=force) == (None, tmp_path / name)
        assert (tmp_path / name / "on" / "kept.txt").read_text() == "kept"
        assert not run_dir.exists()


@pytest.mark.parametrize("state", ["finished", "interrupted"])
def test_experiments_of_another_mode_are_added_to_a_run_of_the_same_program_and_machine(tmp_path, state):
    run_dir = tmp_path / "linux"
    manifest = earlier_run(run_dir, state)
    for resume in (False, True):
        assert settle_earlier(run_dir, TRACE, resume=resume, force=False) == (manifest, None)
    both = settings("on", "off")["experiments"] + TRACE.settings["experiments"]  # type: ignore[operator]
    write_record(
        run_dir / "manifest.json", replace(manifest, settings={**HEAD.settings, "experiments": both})
    )
    for head in (HEAD, TRACE):  # each config continues what it began
        found, moved = settle_earlier(run_dir, head, resume=True, force=False)
        assert found is not None and moved is None


@pytest.mark.parametrize("change", OTHERS)
def test_nothing_is_added_to_another_program_or_machine(tmp_path, change):
    earlier_run(tmp_path / "linux", "finished")
    head = replace(TRACE, **{change: OTHERS[change]})
    kept = settle_earlier(tmp_path / "linux", head, resume=False, force=False)
    assert kept == (None, tmp_path / "linux-20260102-030405")


@pytest.mark.parametrize("state", ["running", "interrupted", "partial", "analysing"])
def test_an_unfinished_run_of_the_same_is_continued_unless_forced(tmp_path, state):
    run_dir = tmp_path / "linux"
    manifest = earlier_run(run_dir, state)
    longer = {**HEAD.settings, "schedule": {"seed": 1, "rounds": 12}, "notes": "later"}
    for head in (HEAD, replace(HEAD, settings=longer)):
        for resume in (False, True):
            assert settle_earlier(run_dir, head, resume=resume, force=False) == (manifest, None)
    aside = tmp_path / "linux-20260102-030405"
    assert settle_earlier(run_dir, HEAD, resume=False, force=True) == (None, aside)


@pytest.mark.parametrize("change", CHANGED)
def test_a_run_that_would_measure_something_else_is_kept_and_never_continued(tmp_path, change):
    run_dir = tmp_path / "linux"
    earlier_run(run_dir, "interrupted")
    with refused(InputError, run_dir, "cannot be continued", fix="--resume"):
        settle_earlier(run_dir, CHANGED[change], resume=True, force=False)
    assert settle_earlier(run_dir, CHANGED[change], resume=False, force=False)[1] is not None


def test_a_finished_run_is_continued_only_when_asked(tmp_path: Path) -> None:
    manifest = earlier_run(tmp_path / "linux", "finished")
    assert settle_earlier(tmp_path / "linux", HEAD, resume=True, force=False) == (manifest, None)


def test_a_run_that_measured_nothing_stands_in_nobodys_way(tmp_path: Path) -> None:
    earlier_run(tmp_path / "linux", "interrupted", measured=False)
    for resume in (False, True):
        assert settle_earlier(tmp_path / "linux", HEAD, resume=resume, force=False) == (None, None)


def test_a_folder_that_is_no_run_or_another_s_is_left_alone(tmp_path: Path) -> None:
    files.write_text(tmp_path / "thesis.tex", "years of work")
    for force in (False, True):
        with refused(InputError, tmp_path, "thesis.tex", "no run"):
            settle_earlier(tmp_path, HEAD, resume=False, force=force)
    assert (tmp_path / "thesis.tex").exists()
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with refused(FormatError, tmp_path / "manifest.json", "schema_version"):
        settle_earlier(tmp_path, HEAD, resume=False, force=True)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    files.write_text(tmp_path / "notes", "mine")
    for run_dir in (tmp_path / "notes", tmp_path / "notes" / "runs" / "linux"):
        with refused(InputError, tmp_path / "notes", "file", fix="folder"):
            check_startable(run_dir)


def test_a_directory_is_locked_while_its_holder_lives_and_no_longer(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from model_profiling.runs.folders import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    holder = subprocess.Popen([sys.executable, "-c", program, run_dir], stdout=subprocess.PIPE, cwd=root)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with refused(InUseError, run_dir, f"process {holder.pid}"), locked(run_dir):
            pass
        # Resuming is no cure for a run that is under way.
        earlier_run(run_dir, "running")
        with refused(InUseError, run_dir, f"process {holder.pid}"):
            check_startable(run_dir)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    check_startable(run_dir)
    with locked(run_dir):
        pass


def test_scratch_folders_are_never_shared(tmp_path: Path) -> None:
    place = RunFiles(tmp_path, "m")
    with scratch_folder(place) as first, scratch_folder(place) as second:
        assert first != second
        assert first.is_dir() and second.is_dir()
        assert os.path.commonpath([first, second]) == str(place.work)
    assert not first.exists() and not second.exists()
