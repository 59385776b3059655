"""Locks: one measurement on a machine, if a process dies too; why one cannot be had."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from said import refused, says
from stand_ins import started

from model_profiling.core.errors import InputError, InUseError
from model_profiling.core.files import LockFile
from model_profiling.core.stdio import Progress, watching
from model_profiling.doctor.checks import in_use
from model_profiling.targets.machine_lock import holder, lock_of, may_wait, measuring_alone, working_beside


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


class Other(Progress):
    """Somebody else, in a thread: wants in, and stays until told."""

    def __init__(self, lock: Callable[..., AbstractContextManager[None]], *words: object) -> None:
        self.waits, self.inside, self.leave = threading.Event(), threading.Event(), threading.Event()
        self.told: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(lock, words))
        self._thread.start()

    def _run(self, lock: Callable[..., AbstractContextManager[None]], words: tuple[object, ...]) -> None:
        with watching(self), contextlib.suppress(InUseError), lock("works", *words):
            self.inside.set()
            self.leave.wait(20)

    def stage(self, text: str) -> None:
        self.told.append(text)
        self.waits.set()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.leave.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_work_runs_beside_work_and_never_beside_a_measurement():
    with Other(working_beside) as one, Other(working_beside) as two:
        assert one.inside.wait(30) and two.inside.wait(30) and not two.waits.is_set()
        with Other(measuring_alone) as measuring:
            assert measuring.waits.wait(30) and not measuring.inside.is_set()
            one.leave.set()
            two.leave.set()
            assert measuring.inside.wait(30)
            with Other(working_beside) as late, Other(measuring_alone) as second:
                assert late.waits.wait(30) and second.waits.wait(30)
                assert not late.inside.is_set() and not second.inside.is_set()
                measuring.leave.set()
                late.leave.set()
                assert second.inside.wait(30)


def test_a_measurement_that_is_killed_leaves_nothing_locked(tmp_path: Path) -> None:
    code = (
        "import time; from model_profiling.targets.machine_lock import measuring_alone\n"
        "with measuring_alone('measures toy_cnn'):\n  print(flush=True); time.sleep(60)"
    )
    with started("-c", code, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with Other(working_beside) as work:
            assert work.waits.wait(30) and not work.inside.is_set()
            assert work.told == [f"waiting: process {other.pid} measures toy_cnn"]
            says(in_use()[0].found, f"process {other.pid} measures toy_cnn")
            os.kill(other.pid, signal.SIGKILL)
            assert work.inside.wait(30)
            assert holder() == f"process {os.getpid()} works"
    assert not holder() and not in_use()
    lock = tmp_path / "sme2prof" / "devices" / ".this-machine.lock"
    assert lock.is_file(), list(tmp_path.rglob("*"))
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with measuring_alone("measures") as problem:
        says(str(problem), "set XDG_STATE_HOME")
    assert not (tmp_path / "elsewhere").exists()


def test_who_may_not_wait_is_told_who_is_there_and_who_looks_disturbs_nobody(tmp_path, lock):
    hostile = "\x1b[2J exports\n" + "x" * 5000
    told = refused(InUseError, str(os.getpid()), "exports")
    with measuring_alone(hostile), may_wait(False), told as said, working_beside("works"):
        pass
    assert "\x1b" not in said.value.problem and len(said.value.problem) < 300
    with may_wait(False), Other(measuring_alone) as other:
        assert other.inside.wait(30), "nobody is there"
    with measuring_alone("measures"):
        (tmp_path / "sme2prof/devices/.this-machine.lock").write_bytes(b"")
        with may_wait(False), refused(InUseError, "this machine"), working_beside("works"):
            pass
    with lock.held(), refused(InUseError, "it", f"process {os.getpid()}"):
        lock.check_free()
    looking = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    try:
        lock.check_free()
    finally:
        os.close(looking)


@pytest.mark.parametrize("lock", [measuring_alone, working_beside])
def test_where_no_lock_can_be_had(lock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with lock("works") as problem:
        says(str(problem), "XDG_STATE_HOME")
    assert not holder()
    of_phone = lock_of("android:R5CT", "R5CT")
    assert not of_phone.holder()
    with refused(InputError, fix="XDG_STATE_HOME"), of_phone.held():
        pass


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    return LockFile(tmp_path / "state" / ".it.lock", "it", "wait")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EBADF])
def test_a_file_system_without_locks(lock: LockFile, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    lock.path.parent.mkdir()
    lock.path.touch()
    monkeypatch.setattr(fcntl, "flock", flock)
    lock.check_free()
    with refused(InputError, lock.path), lock.held():
        pass


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_lock_that_is_a_link_leaves_its_victim_whole(lock, make, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("whole")
    lock.path.parent.mkdir()
    make(victim, lock.path)
    lock.check_free()
    with refused(InputError, lock.path, "link"), lock.held():
        pass
    assert victim.read_text() == "whole"


def test_a_user_without_a_home() -> None:
    """As in containers that are started with a number for a user."""
    script = """
import os, pwd
os.environ.clear()
pwd.getpwuid = {}.__getitem__  # nobody
from model_profiling.core.errors import SetupError
from model_profiling.runner.cache import cache_root, state_root
for root in (cache_root, state_root):
    try: root()
    except SetupError as problem: print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for line, name in zip(done.stdout.splitlines(), ("CACHE", "STATE"), strict=True):
        says(line, "no home", "HOME", f"XDG_{name}_HOME")
