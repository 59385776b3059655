"""A lock that cannot be had says why and what to do; looking at one takes nothing from anybody."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from said import refused, says

from model_profiling.core.errors import InputError, InUseError
from model_profiling.core.files import LockFile
from model_profiling.targets.device.power_mode import MachineLock


@pytest.fixture
def lock(tmp_path: Path) -> LockFile:
    return LockFile(tmp_path / "state" / ".it.lock", "it", "wait")


def test_who_only_looks_does_not_disturb_others_who_look(lock: LockFile) -> None:
    with lock.held(), refused(InUseError, "it", f"process {os.getpid()}"):
        lock.check_free()
    looking = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    try:
        lock.check_free()
    finally:
        os.close(looking)


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


def test_a_machine_whose_lock_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    lock = MachineLock("android:R5CT", ("R5CT",))
    assert not lock.is_held()
    with refused(InputError, fix="XDG_STATE_HOME"), lock.held():
        pass


def test_a_user_without_a_home() -> None:
    """As in containers that are started with a number for a user."""
    script = """
import os
os.environ.clear()
import pwd
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
from model_profiling.core.errors import SetupError
from model_profiling.runner.cache import cache_root, state_root
for root in (cache_root, state_root):
    try:
        root()
    except SetupError as problem:
        print(problem)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for line, name in zip(done.stdout.splitlines(), ("CACHE", "STATE"), strict=True):
        says(line, "no home", "HOME", f"XDG_{name}_HOME")
