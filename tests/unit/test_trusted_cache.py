"""The cache: what is run from it is whole, and only this user can have put it there; `sme2prof clean`."""

import json
import os
import sys
from pathlib import Path

import pytest
from said import refused, says

from model_profiling import doctor
from model_profiling.core.errors import SetupError
from model_profiling.doctor import checks
from model_profiling.runner import build
from model_profiling.runner.cache import cached, check_cache, make_root
from model_profiling.targets.machine_lock import measuring_alone

FOREIGN = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
A_STRANGER = 12345


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache"


def make(into: Path) -> None:
    (into / "bin").mkdir(parents=True)
    (into / "bin/program").write_bytes(bytes(1_000_000))
    (into / "link").symlink_to("/usr")


def never(_: Path) -> None:
    raise AssertionError("it is made again")


def test_an_entry_is_made_once_and_whole_also_by_two(root: Path) -> None:
    home = root / "tools" / "one"

    def half(into: Path) -> None:
        make(into)
        raise SetupError("the line went dead", "try again")

    def full(into: Path) -> None:
        make(into)
        raise OSError(28, "No space left on device")

    for failing, *said in ((half, "dead"), (full, "a tool", root / "tools", "no space left on device")):
        with refused(SetupError, *said):
            cached(home, failing, "a tool", fetch=True)
    assert list((root / "tools").iterdir()) == []
    with refused(SetupError, "a tool"):
        cached(home, never, "a tool", fetch=False)
    assert cached(home, make, "a tool", fetch=True) == home
    assert cached(home, never, "a tool", fetch=True) == home == cached(home, never, "a tool", fetch=False)
    assert list(home.parent.iterdir()) == [home]
    home = root / "programs" / "one"

    def slower(into: Path) -> None:
        cached(home, make, "a tool", fetch=True)
        into.mkdir()

    assert cached(home, slower, "a tool", fetch=True) == home
    assert (home / "bin/program").is_file() and list(home.parent.iterdir()) == [home]


@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_nobody_else_can_reach_what_the_kit_makes(root: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        cached(root / "tools" / "one", make, "a tool", fetch=True)
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o077 == 0


def test_a_cache_that_others_can_write_to_is_not_used(root: Path) -> None:
    wheel, compiler = build.installed_sdk(), build.find_compiler()
    home, it_ran = build.built_runner(wheel, compiler).parent, root / "it_ran"

    def plant(into: Path) -> None:
        into.mkdir()
        (into / "sme2prof-runner").write_text(f"#!/bin/sh\ntouch {it_ran}\necho '{{}}'\n")
        (into / "sme2prof-runner").chmod(0o755)

    cached(home, plant, "a plant", fetch=True)
    for mode in (0o777, 0o1777):  # in the latter, others can still add what is not there yet
        root.chmod(mode)
        with refused(SetupError, root, "SME2PROF_CACHE", fix=f"chmod go-w {root}"):
            build.build_runner(wheel, compiler)
        assert checks.cache().status == "fail" and str(root) in checks.cache().found
        assert build.runner_check().status == "skipped"
    if sys.platform == "linux":
        (emulation,) = [check for check in doctor.examine().checks if check.name == "SME2 emulation"]
        says(emulation.found, root)
    assert not it_ran.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="nobody can make a folder in /proc")
def test_a_cache_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2PROF_CACHE", "/proc/none")
    with refused(SetupError, "cannot make /proc/none", fix="set SME2PROF_CACHE"):
        make_root()


@FOREIGN
def test_a_cache_that_belongs_to_somebody_else(root: Path) -> None:
    home = cached(root / "tools" / "one", make, "a tool", fetch=True)
    os.chown(root, A_STRANGER, -1)
    with refused(SetupError, root, A_STRANGER, fix="SME2PROF_CACHE"):
        cached(home, never, "a tool", fetch=True)


def test_clean_removes_the_cache_whole(root: Path, sme2prof) -> None:
    assert sme2prof("clean").stdout == f"removed 0 bytes: {root}\n"
    home = cached(root / "tools" / "one", make, "a tool", fetch=True)
    (home / "bin").chmod(0o500)
    with measuring_alone("measures toy_cnn"):
        busy = sme2prof("clean")
        assert busy.returncode == 2 and home.is_dir()
        says(busy.stderr, "in use", "measures toy_cnn")
    facts = json.loads(sme2prof("clean", "--json").stdout)
    assert facts["removed"] is True and facts["bytes"] >= 1_000_000
    assert not root.exists() and Path("/usr").is_dir(), "no link is followed"
    assert check_cache() == root


def test_clean_leaves_a_folder_that_the_kit_has_not_made(root: Path, sme2prof) -> None:
    root.mkdir()
    (root / "photo").touch()
    cached(root / "tools" / "one", make, "a tool", fetch=True)
    kept = sme2prof("clean")
    assert kept.returncode == 2 and (root / "photo").is_file()
    says(kept.stderr, root, "not made by the kit")
    assert sme2prof("clean", "--device-path", "/x").returncode == 2
    says(sme2prof("clean", "--target", "host").stderr, "nothing on target host")
