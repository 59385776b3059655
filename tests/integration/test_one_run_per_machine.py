"""Two runs on one machine would disturb each other: on this one the second waits, on another it is refused in
one line. Two machines are two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest
from said import says
from ssh_server import SshServer, sshd
from stand_ins import started

from model_profiling.core.errors import InputError
from model_profiling.runs.journal import Journal
from model_profiling.targets import TargetChoice, open_target
from model_profiling.targets.machine_lock import holder, measuring_alone
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.ssh import SshTarget

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="virtual machines are Linux's")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    server = sshd(tmp_path_factory.mktemp("sshd"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SME2PROF_SSH", server.ssh)
        yield server
    server.stop()


@pytest.mark.usefixtures("own_state")
def test_this_machine_serves_one_after_the_other(sme2prof, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn").pte
    brief = ("profile", pte, "--target", "host", "--quick", "--budget", "2", "--outdir")
    words, said = ("-m", "model_profiling", *brief), ["", ""]
    with ExitStack() as running:
        children = [started(*words, tmp_path / name, stderr=subprocess.PIPE, text=True) for name in "ab"]
        both = [running.enter_context(child) for child in children]
        with measuring_alone("measures something (a test)"):
            for number, each in enumerate(both):
                while "waiting" not in said[number]:
                    line = each.stderr.readline() if each.stderr else ""
                    assert line, said
                    said[number] += line
                says(said[number], f"waiting: process {os.getpid()} measures something (a test)")
            refused = sme2prof(*brief, tmp_path / "c", "--no-wait")
            assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 2, refused.stderr
            says(refused.stderr, "in use", f"process {os.getpid()} measures something", "--no-wait")
            words = ("--target", "host", "--outdir", tmp_path / "d", "--no-wait")
            refused = sme2prof("compare", pte, pte, *words)
            assert refused.returncode == 2 and "in use" in refused.stderr
        said = [each.communicate(timeout=200)[1] for each in both]
        assert [each.returncode for each in both] == [0, 0], said
    second = 0 if "waiting" in said[0] else 1
    says(said[second], f"waiting: process {both[1 - second].pid} measures {pte.stem} (sme2prof profile {pte}")
    spans = sorted(span_of(tmp_path / name) for name in "ab")
    # A start is noted as a whole second.
    assert spans[0][1] < spans[1][0] + 1, "they measured at the same time"
    assert not holder() and not list((tmp_path / "c").rglob("manifest.json"))


def span_of(home: Path) -> tuple[float, float]:
    """When a run's first process began and its last one ended."""
    (manifest,) = home.rglob("manifest.json")
    entries = list(Journal(manifest.parent).entries())
    began = [datetime.fromisoformat(entry.started).timestamp() for entry in entries]
    return min(began), max(start + entry.seconds for start, entry in zip(began, entries, strict=True))


def ssh_target(host: str, there: Path) -> SshTarget:
    target = open_target(TargetChoice("ssh", host=host, device_path=str(there)))
    assert isinstance(target, SshTarget)
    return target


@pytest.mark.usefixtures("server")
def test_a_machine_behind_ssh_is_one_by_whatever_name(tmp_path: Path) -> None:
    board, alias = ssh_target("board", tmp_path), ssh_target("alias", tmp_path)
    try:
        with board.held_ready():
            with pytest.raises(InputError, match=r"^ssh:alias is in use by another run \(process \d+, since"):
                alias.prepare()
            with pytest.raises(InputError, match=r"^ssh:alias is in use"), alias.held_ready():
                pass
        with alias.held_ready():
            assert alias.take_notes() == ()
    finally:
        board.close()
        alias.close()


@pytest.mark.usefixtures("server")
def test_a_job_that_finds_no_room_is_one_line_with_a_cure(tmp_path: Path) -> None:
    """What shells of other makes say of it differs."""
    target = ssh_target("board", tmp_path)
    try:
        target.folder.open()
        transport = target.folder
        job = target.folder.make_folder()
        # A device on which every write fails so.
        Path(f"{job}.pid").symlink_to("/dev/full")
        full = r"there is no space left; free .*, then run it again$"
        with pytest.raises(InputError, match=full):
            transport.run(["true"], folder=job, timeout=10, cores=())
        Path(f"{job}.pid").unlink()
        leaves = ["sh", "-c", "cat /proc/self/status >/dev/full"]
        with pytest.raises(InputError, match=full):
            transport.run(leaves, folder=job, timeout=10, cores=())
        own = transport.run(["sh", "-c", f"exit {scripts.NOT_BEGUN}"], folder=job, timeout=10, cores=())
        assert own.returncode == scripts.NOT_BEGUN, "a program may end as it likes"
    finally:
        target.close()
