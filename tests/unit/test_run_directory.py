"""Run directories: names, what becomes of an earlier run, locks, torn journals, and what may be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from model_profiling.pipeline.journal import JOURNAL_FILE, Entry, Journal, Output
from model_profiling.pipeline.run_directory import RunDirectory, check_startable, clear_work, settle_earlier

from model_profiling import files
from model_profiling.errors import FormatError, InputError
from model_profiling.pipeline.locking import locked
from model_profiling.pipeline.resume import check_rounds, check_unchanged
from model_profiling.pipeline.schedule import Series, Step

ENTRY = Entry(
    kind="untraced",
    experiment="on",
    threads=1,
    round=0,
    session=1,
    state="done",
    started="2026-01-01T00:00:00+0000",
    seconds=0.5,
    iterations_ns=(1, 2, 3),
    features_present=("fp16",),
    outputs=(Output("on/x.bin", "float32", (1, 10), (0, 1), 0, 0),),
    kernels={"kai_run_x": 3},
)


def manifest(run_dir: Path, state: str, *, measured: bool = True) -> None:
    files.write_json(run_dir / "manifest.json", {"schema_version": 1, "state": state, "results": []})
    files.write_text(run_dir / "on" / "kept.txt", "kept")
    if measured:
        Journal(run_dir).append(ENTRY)


def test_names_follow_the_contract(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path, "toy_xnnpack_fp16")
    series = Series("mac_sme2_on", 2)
    assert place.relative(place.dump(Step("traced", series))) == (
        "mac_sme2_on/toy_xnnpack_fp16_mac_sme2_on_t2.etdump"
    )
    assert place.relative(place.dump(Step("traced", series, 3))) == (
        "mac_sme2_on/rounds/toy_xnnpack_fp16_mac_sme2_on_t2_r3.etdump"
    )
    assert place.summary("md").name == "toy_xnnpack_fp16_pipeline_summary.md"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("state", ["finished", "failed"])
def test_an_ended_run_is_moved_aside_whole(tmp_path: Path, state: str, force: bool) -> None:
    run_dir = tmp_path / "linux"
    for number in (1, 2):
        manifest(run_dir, state)
        earlier, moved = settle_earlier(run_dir, resume=False, force=force)
        assert (earlier, moved) == (None, tmp_path / f"linux-earlier-{number}")
        assert moved is not None and (moved / "on" / "kept.txt").read_text() == "kept"
        assert not run_dir.exists()


@pytest.mark.parametrize("state", ["running", "interrupted", "partial", "analysing"])
def test_an_unfinished_run_is_continued_or_discarded_but_never_overwritten(
    tmp_path: Path, state: str
) -> None:
    run_dir = tmp_path / "linux"
    manifest(run_dir, state)
    with pytest.raises(
        InputError, match=r"unfinished run; continue it with --resume, discard it with --force"
    ):
        settle_earlier(run_dir, resume=False, force=False)
    earlier, moved = settle_earlier(run_dir, resume=True, force=False)
    assert earlier is not None and earlier["state"] == state and moved is None
    assert settle_earlier(run_dir, resume=False, force=True) == (None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_measured_nothing_stands_in_nobodys_way(tmp_path: Path) -> None:
    manifest(tmp_path / "linux", "interrupted", measured=False)
    for resume in (False, True):
        assert settle_earlier(tmp_path / "linux", resume=resume, force=False) == (None, None)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    files.write_text(tmp_path / "thesis.tex", "years of work")
    for force in (False, True):
        with pytest.raises(InputError, match=r"holds other files \(thesis\.tex\), but no run"):
            settle_earlier(tmp_path, resume=False, force=force)
    assert (tmp_path / "thesis.tex").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    files.write_text(tmp_path / "notes", "mine")
    for run_dir in (tmp_path / "notes", tmp_path / "notes" / "runs" / "linux"):
        with pytest.raises(InputError, match=r"/notes is a file, not a folder; name another folder"):
            check_startable(run_dir, resume=False, force=False)


def test_a_foreign_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(FormatError, match="not a manifest of this kit"):
        settle_earlier(tmp_path, resume=False, force=True)


def test_a_directory_is_locked_while_its_holder_lives_and_no_longer(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    program = (
        "import sys, time; from pathlib import Path\n"
        "from model_profiling.pipeline.locking import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    root = Path(__file__).resolve().parents[2]
    holder = subprocess.Popen([sys.executable, "-c", program, run_dir], stdout=subprocess.PIPE, cwd=root)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        said = rf"in use by another run \(process {holder.pid}, since 20"
        with pytest.raises(InputError, match=said), locked(run_dir):
            pass
        # Neither resuming nor discarding is the cure for a run that is under way.
        manifest(run_dir, "running")
        with pytest.raises(InputError, match=said):
            check_startable(run_dir, resume=False, force=False)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    check_startable(run_dir, resume=True, force=False)
    with locked(run_dir):
        pass


def test_a_journal_gives_back_what_was_appended(tmp_path: Path) -> None:
    failed = replace(ENTRY, round=1, state="failed", problem="it crashed", fix="look", iterations_ns=())
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    journal.append(failed)
    again = Journal(tmp_path)
    assert again.entries() == (ENTRY, failed)
    assert again.done(ENTRY.step) and not again.done(failed.step)


def test_of_two_entries_of_a_step_the_later_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    journal.append(replace(ENTRY, session=2, iterations_ns=(9,)))
    assert [entry.iterations_ns for entry in Journal(tmp_path).entries()] == [(9,)]


def test_a_journal_torn_at_any_byte_keeps_every_whole_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entries = [replace(ENTRY, round=number) for number in range(3)]
    for entry in entries:
        journal.append(entry)
    content = (tmp_path / JOURNAL_FILE).read_bytes()
    ends = [place for place, byte in enumerate(content, start=1) if byte == ord("\n")]
    for cut in range(0, len(content), 5):
        (tmp_path / JOURNAL_FILE).write_bytes(content[:cut])
        whole = sum(1 for end in ends if end <= cut)
        torn = Journal(tmp_path)
        assert torn.entries() == tuple(entries[:whole])
        if cut % 95 == 0:
            torn.append(entries[2])
            assert Journal(tmp_path).entries()[-1] == entries[2]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    Journal(tmp_path).append(ENTRY)
    with (tmp_path / JOURNAL_FILE).open("a") as stream:
        stream.write('{"schema_version": 1, "kind": "unt\n')
    with pytest.raises(FormatError, match=r"journal\.jsonl, line 2 is damaged"):
        Journal(tmp_path)


def test_a_full_disk_loses_nothing_that_was_there(tiny_disk: Path) -> None:
    journal = Journal(tiny_disk)
    journal.append(ENTRY)
    with pytest.raises(InputError, match="free some space, then continue with --resume"):
        journal.append(replace(ENTRY, round=1, iterations_ns=tuple(range(10**17, 10**17 + 30000))))
    assert Journal(tiny_disk).entries() == (ENTRY,)
    journal.append(replace(ENTRY, round=1))
    assert len(Journal(tiny_disk).entries()) == 2


def test_what_a_killed_pipeline_left_running_is_ended(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path / "linux", "m")
    scratch = place.scratch()
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
    reader = subprocess.Popen(["tail", "-f", scratch / "x.log"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.2)
        clear_work(place)
        assert orphan.wait(timeout=10) == own.wait(timeout=10) == -signal.SIGKILL
        assert bystander.poll() is None and reader.poll() is None
        assert not place.work.exists()
    finally:
        for child in (orphan, own, bystander, reader):
            child.kill()
            child.wait()


MANIFEST: dict[str, object] = {
    "model_sha256": "aa",
    "target": {"name": "host"},
    "executorch": {"version": "1.5.1"},
    "runner": {"build_id": "b1"},
    "machine": {"before": {"cpu": "N1"}},
    "config": {
        "notes": "",
        "experiments": [{"name": "on", "runs": 10}],
        "schedule": {"rounds": 4, "seed": 1},
    },
}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("model_sha256",), "bb", "the model's content was aa, now it is bb"),
        (("target", "name"), "emulated", "the target was host"),
        (("executorch", "version"), "1.6", "the ExecuTorch version was 1.5.1"),
        (("runner", "build_id"), "b2", "the runner was b1"),
        (("machine", "before", "cpu"), "M4", "the CPU was N1"),
        (("config", "experiments", 0, "runs"), 20, r"experiments\[0\].runs was 10, now it is 20"),
        (("config", "experiments"), [], "experiments was 1 of them"),
        (("config", "schedule", "seed"), 2, "schedule.seed was 1, now it is 2"),
    ],
)
def test_a_changed_run_is_not_continued(path: tuple[str | int, ...], value: object, said: str) -> None:
    changed = json.loads(json.dumps(MANIFEST))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match=said):
        check_unchanged(Path("runs/linux"), MANIFEST, changed)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("notes",), "later"), (("schedule", "rounds"), 12), (("analysis",), {"confidence": 0.9})],
)
def test_more_rounds_and_notes_may_change(path: tuple[str, ...], value: object) -> None:
    changed = json.loads(json.dumps(MANIFEST))
    place = changed["config"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    check_unchanged(Path("runs/linux"), MANIFEST, changed)


def test_fewer_rounds_than_were_begun_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.rounds_begun == 0
    journal.append(replace(ENTRY, kind="evidence"))
    assert journal.rounds_begun == 0
    journal.append(replace(ENTRY, kind="traced", round=8, state="failed"))
    assert Journal(tmp_path).rounds_begun == 9
    check_rounds(tmp_path, 9, 9)
    with pytest.raises(InputError, match="with 8 rounds: round 9 was begun; ask for 9 rounds or more"):
        check_rounds(tmp_path, 9, 8)
    with pytest.raises(InputError, match="with 1 round: round 2 was begun"):
        check_rounds(tmp_path, 2, 1)


def test_scratch_folders_are_never_shared(tmp_path: Path) -> None:
    place = RunDirectory(tmp_path, "m")
    assert place.scratch() != place.scratch()
    assert os.path.commonpath([place.scratch(), place.work]) == str(place.work)
