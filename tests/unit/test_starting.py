"""Who may begin in a run directory: runs are continued, added to or kept; locks; leftovers."""

import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused
from stand_ins import started

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
    model_sha256="aa", target=TargetFacts("host", "linux", Times.HARDWARE), executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"), machine=Machine(MachineFacts(cpu="N1")), settings=settings("on", "off"),
    sessions=(Session(1, (), "2026-01-02T03:04:05+0000"),), schedule=ScheduleFacts(seed=1), state="running",
    results=(),
)  # fmt: skip
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


def test_a_finished_run_is_continued_when_asked_and_one_without_a_measurement_is_in_nobodys_way(tmp_path):
    manifest = earlier_run(tmp_path / "linux", "finished")
    assert settle_earlier(tmp_path / "linux", HEAD, resume=True, force=False) == (manifest, None)
    shutil.rmtree(tmp_path / "linux")
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
    holder = started("-c", program, run_dir, stdout=subprocess.PIPE)
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
