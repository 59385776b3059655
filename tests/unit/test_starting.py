"""Who may begin in a run directory: runs are joined, kept, continued or discarded; locks; leftovers."""

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
from model_profiling.core.records import parse_record, record_json, write_record
from model_profiling.runs import Manifest, Times
from model_profiling.runs.begin import (
    Earlier,
    check_rounds,
    check_startable,
    check_unchanged,
    clear_work,
    settle_earlier,
)
from model_profiling.runs.folders import locked
from model_profiling.runs.journal import Entry, Journal
from model_profiling.runs.manifest import ExecuTorch, Machine, Part, Runner, Session, State, TargetFacts
from model_profiling.runs.measuring import scratch_folder
from model_profiling.targets import MachineFacts

HEAD = Manifest(
    model_sha256="aa",
    target=TargetFacts("host", "linux", Times.HARDWARE),
    executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"),
    machine=Machine(MachineFacts(cpu="N1")),
    sessions=(Session(1, (), "2026-01-02T03:04:05+0000"),),
    experiments=("on", "off"),
    state="running",
    results=(),
)
TRACE = replace(HEAD, experiments=("trace",))


def earlier_run(run_dir: Path, *states: State, measured: bool = True) -> Manifest:
    """A run in `run_dir` with a part in each state; the first is of other experiments than `HEAD`'s."""
    parts = [Part(experiments=(f"other{number}",), state=state) for number, state in enumerate(states[:-1])]
    parts = [replace(part, sessions=HEAD.sessions) for part in parts]
    manifest = replace(HEAD, state=states[-1], earlier_parts=tuple(parts))
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
        earlier_run(run_dir, state)
        assert settle_earlier(run_dir, HEAD, resume=False, force=force) == Earlier(moved=tmp_path / name)
        assert (tmp_path / name / "on" / "kept.txt").read_text() == "kept"
        assert not run_dir.exists()


def test_a_finished_run_is_joined_by_other_experiments_of_the_same_program_and_machine(tmp_path):
    run_dir = tmp_path / "linux"
    manifest = earlier_run(run_dir, "finished")
    for resume in (False, True):
        assert settle_earlier(run_dir, TRACE, resume=resume, force=False) == Earlier(manifest)
    assert (run_dir / "on" / "kept.txt").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"model_sha256": "bb"},
        {"target": TargetFacts("host", "mac", Times.HARDWARE)},
        {"executorch": ExecuTorch("1.6")},
        {"runner": Runner("b2")},
        {"machine": Machine(MachineFacts(cpu="M4"))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_of_another_program_or_machine_is_not_joined(tmp_path, change):
    earlier_run(tmp_path / "linux", "finished")
    head = replace(TRACE, **change)  # type: ignore[arg-type]
    kept = settle_earlier(tmp_path / "linux", head, resume=False, force=False)
    assert kept == Earlier(moved=tmp_path / "linux-20260102-030405")


@pytest.mark.parametrize("state", ["running", "interrupted", "partial", "analysing"])
def test_an_unfinished_run_is_continued_or_discarded_but_never_overwritten(tmp_path, state):
    run_dir = tmp_path / "linux"
    manifest = earlier_run(run_dir, state)
    with refused(InputError, run_dir, "--resume", fix="--force"):
        settle_earlier(run_dir, HEAD, resume=False, force=False)
    with refused(InputError, run_dir, "other experiments"):
        settle_earlier(run_dir, TRACE, resume=True, force=False)
    assert settle_earlier(run_dir, HEAD, resume=True, force=False) == Earlier(manifest, manifest)
    assert settle_earlier(run_dir, HEAD, resume=False, force=True) == Earlier()
    assert list(tmp_path.iterdir()) == []


def test_a_finished_part_is_never_discarded_with_an_unfinished_one(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    manifest = earlier_run(run_dir, "finished", "interrupted")
    assert settle_earlier(run_dir, HEAD, resume=True, force=False) == Earlier(manifest, manifest)
    kept = settle_earlier(run_dir, HEAD, resume=False, force=True)
    assert kept.moved is not None and (kept.moved / "on" / "kept.txt").exists()


def test_each_part_is_continued_by_its_own_config(tmp_path: Path) -> None:
    manifest = earlier_run(tmp_path / "linux", "interrupted", "finished")
    head = replace(HEAD, experiments=("other0",))
    found = settle_earlier(tmp_path / "linux", head, resume=True, force=False)
    assert found == Earlier(manifest, manifest.earlier_parts[0])


def test_a_run_that_measured_nothing_stands_in_nobodys_way(tmp_path: Path) -> None:
    earlier_run(tmp_path / "linux", "interrupted", measured=False)
    for resume in (False, True):
        assert settle_earlier(tmp_path / "linux", HEAD, resume=resume, force=False) == Earlier()


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
            check_startable(run_dir, resume=False, force=False)


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
        # Neither resuming nor discarding is the cure for a run that is under way.
        earlier_run(run_dir, "running")
        with refused(InUseError, run_dir, f"process {holder.pid}"):
            check_startable(run_dir, resume=False, force=False)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    check_startable(run_dir, resume=True, force=False)
    with locked(run_dir):
        pass


def test_what_a_killed_pipeline_left_running_is_ended(tmp_path: Path) -> None:
    place = RunFiles(tmp_path / "linux", "m")
    files.make_folder(scratch := place.work / "process-killed")
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", "--result", scratch / "x.json"],
        start_new_session=True,
    )
    own = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", f"--etdump_path={scratch / 'x.etdump'}"],
        start_new_session=True,
    )
    files.write_text(scratch / "x.log", "")
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", tmp_path])
    reader = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", scratch / "x.log"])
    try:
        clear_work(place)
        assert orphan.wait(timeout=10) == own.wait(timeout=10) == -signal.SIGKILL
        assert bystander.poll() is None and reader.poll() is None
        assert not place.work.exists()
    finally:
        for child in (orphan, own, bystander, reader):
            child.kill()
            child.wait()


def test_scratch_folders_are_never_shared(tmp_path: Path) -> None:
    place = RunFiles(tmp_path, "m")
    with scratch_folder(place) as first, scratch_folder(place) as second:
        assert first != second
        assert first.is_dir() and second.is_dir()
        assert os.path.commonpath([first, second]) == str(place.work)
    assert not first.exists() and not second.exists()


RESUMED = Manifest(
    model_sha256="aa",
    target=TargetFacts("host"),
    executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"),
    machine=Machine(MachineFacts(cpu="N1")),
    settings={"notes": "", "experiments": [{"name": "on", "runs": 10}], "schedule": {"rounds": 4, "seed": 1}},
    results=(),
)


def changed(path: tuple[str | int, ...], value: object) -> Manifest:
    content = record_json(RESUMED)
    place = content
    for key in path[:-1]:
        place = place[key]  # type: ignore[index, assignment]
    place[path[-1]] = value  # type: ignore[index]
    return parse_record(Manifest, content, "changed", "")


@pytest.mark.parametrize(
    ("path", "value", "facts"),
    [
        (("model_sha256",), "bb", ("model", "aa", "bb")),
        (("target", "name"), "emulated", ("target", "host", "emulated")),
        (("executorch", "version"), "1.6", ("ExecuTorch", "1.5.1", "1.6")),
        (("runner", "build_id"), "b2", ("runner", "b1", "b2")),
        (("machine", "before", "cpu"), "M4", ("CPU", "N1", "M4")),
        (("settings", "experiments", 0, "runs"), 20, ("experiments[0].runs", "10", "20")),
        (("settings", "experiments"), [], ("experiments", "1", "[]")),
        (("settings", "schedule", "seed"), 2, ("schedule.seed", "1", "2")),
    ],
)
def test_a_changed_run_is_not_continued(path, value, facts):
    with refused(InputError, "runs/linux", *facts):
        check_unchanged(Path("runs/linux"), RESUMED, RESUMED, changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [(("notes",), "later"), (("schedule", "rounds"), 12), (("analysis",), {"confidence": 0.9})],
)
def test_more_rounds_and_notes_may_change(path: tuple[str, ...], value: object) -> None:
    check_unchanged(Path("runs/linux"), RESUMED, RESUMED, changed(("settings", *path), value))


def test_a_part_is_held_against_its_own_config_and_machine() -> None:
    """What another config put into the run may be as it is."""
    other = replace(RESUMED, settings={"experiments": [{"name": "trace"}]}, machine=Machine())
    check_unchanged(Path("runs/linux"), other, RESUMED, RESUMED)
    with refused(InputError, "CPU"):
        check_unchanged(Path("runs/linux"), RESUMED, other, RESUMED)


def test_fewer_rounds_than_were_begun_are_refused(tmp_path: Path) -> None:
    check_rounds(tmp_path, 9, 9)
    with refused(InputError, tmp_path, "8 rounds", "round 9", fix="9 rounds"):
        check_rounds(tmp_path, 9, 8)
    with refused(InputError, tmp_path, "1 round", "round 2", fix="2 rounds"):
        check_rounds(tmp_path, 2, 1)
