"""What is run from the cache: only what nobody else can have put there, and only as it was made."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from said import refused, says

from model_profiling import doctor
from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.doctor import checks
from model_profiling.runner import build, cache
from model_profiling.runner.cache import cached, damage_of, take_repair_notes
from model_profiling.targets import emulated

AS_ROOT = os.geteuid() == 0
A_STRANGER = 12345
FOREIGN = pytest.mark.skipif(not AS_ROOT, reason="only root can give a file to somebody else")
PROGRAM, LIBRARY = "bin/program", "lib/libone.so"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
MEND = """\
import pathlib, sys
from model_profiling.runner.cache import cached
def make(into):
    into.mkdir()
    (into / "program").touch()
home = cached(pathlib.Path(sys.argv[1]), make, "a tool", fetch=True)
print(home.stat().st_ino)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    take_repair_notes()
    yield tmp_path / "cache"
    take_repair_notes()


@pytest.fixture
def home(root: Path) -> Path:
    made = root / "tools" / "one"
    cached(made, make, "a tool", fetch=True)
    return made


def make(into: Path) -> None:
    for name, content in ((PROGRAM, b"#!/bin/sh\necho as it was\n"), (LIBRARY, bytes(range(256)) * 40)):
        (into / name).parent.mkdir(parents=True)
        (into / name).write_bytes(content)
    (into / PROGRAM).chmod(0o777)
    (into / "lib/libone.so.1").symlink_to("libone.so")


def never(_: Path) -> None:
    raise AssertionError("it is made again")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(path: Path, content: Path) -> None:
    path.unlink()
    path.symlink_to(content)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated program": (lambda home: os.truncate(home / PROGRAM, 9), PROGRAM),
    "a bit of a library": (lambda home: flip(home / LIBRARY), LIBRARY),
    "a folder for a program": (lambda home: ((home / PROGRAM).unlink(), (home / PROGRAM).mkdir()), PROGRAM),
    "missing library": (lambda home: (home / LIBRARY).unlink(), LIBRARY),
    "no longer a program": (lambda home: (home / PROGRAM).chmod(0o644), PROGRAM),
    "another library": (lambda home: (home / "lib/new.so").touch(), "lib/new.so"),
    "a link for a file": (lambda home: swap(home / PROGRAM, Path("/bin/true")), PROGRAM),
    "a link elsewhere": (lambda home: swap(home / "lib/libone.so.1", Path("/x")), "libone.so.1"),
    "half a record": (lambda home: os.truncate(home / cache.RECORD, 40), "its record"),
    "no record": (lambda home: (home / cache.RECORD).unlink(), "its record"),
    "another's record": (lambda home: (home / cache.RECORD).write_text('{"files": [[1]]}'), "its record"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_made_again_once_and_that_is_said(home: Path, kind: str) -> None:
    damage, place = DAMAGE[kind]
    damage(home)
    with refused(SetupError, "a tool", place):
        cached(home, never, "a tool", fetch=False)
    assert cached(home, make, "a tool", fetch=True) == home
    (note,) = take_repair_notes()
    says(note, "a tool", place)
    assert process.run([home / PROGRAM], timeout=10).stdout == "as it was\n"
    assert cached(home, never, "a tool", fetch=True) == home and not take_repair_notes()
    assert list(home.parent.iterdir()) == [home]


def test_large_entries_are_hashed_where_a_file_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_HASHED_EACH_TIME", 0)
    hashed: list[Path] = []
    real = cache.files.sha256
    monkeypatch.setattr(cache.files, "sha256", lambda path: hashed.append(path) or real(path))
    assert damage_of(home) is None and hashed == []
    flip(home / LIBRARY)
    says(damage_of(home) or "", LIBRARY)
    assert hashed == [home / LIBRARY]


def test_damaged_at_once_is_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = cache.write_record

    def forgetful(home: Path, what: str) -> None:
        record(home, what)
        os.truncate(home / LIBRARY, 4096)

    monkeypatch.setattr(cache, "write_record", forgetful)
    with refused(SetupError, "a tool", LIBRARY, fix=root / "tools" / "one"):
        cached(root / "tools" / "one", make, "a tool", fetch=True)
    assert not take_repair_notes()


def test_what_cannot_be_made_again_says_what_is_wrong_with_the_old_one(home: Path) -> None:
    """An entry of an earlier version of the kit, on a machine that has no network now."""

    def offline(_: Path) -> None:
        raise SetupError("pip cannot get it: no network", "check the connection")

    (home / cache.RECORD).unlink()
    with refused(SetupError, "a tool", "its record", "no network") as caught:
        cached(home, offline, "a tool", fetch=True)
    assert caught.value.fix == "check the connection" and (home / PROGRAM).is_file()
    with refused(SetupError, "no network") as caught:
        cached(home.with_name("two"), offline, "a tool", fetch=True)
    assert "a tool" not in str(caught.value), "there is no old one"


def test_of_two_that_mend_at_once_neither_removes_the_others(home, monkeypatch):
    """One looks at the damaged entry; before it has put its own there, the other one has, and runs it."""
    (home / PROGRAM).unlink()
    waiting, made, real = threading.Event(), threading.Event(), cache.damage_of
    asked: list[int] = []

    def slow(place: Path) -> str | None:
        damage = real(place)
        asked.append(1)
        if len(asked) == 2:  # the look before the first one's removal
            waiting.set()
            made.wait(0.5)
        return damage

    monkeypatch.setattr(cache, "damage_of", slow)
    first = threading.Thread(target=cached, args=(home, make, "a tool"), kwargs={"fetch": True})
    first.start()
    assert waiting.wait(5)
    mended = subprocess.Popen(
        [sys.executable, "-c", MEND, str(home)], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    inode = int(mended.stdout.readline())
    made.set()
    first.join()
    mended.stdout.close()
    assert mended.wait() == 0 and home.stat().st_ino == inode, "it is the one that is being used"


def test_a_full_disk_or_a_kill_leaves_no_entry(root: Path) -> None:
    def full(into: Path) -> None:
        make(into)
        raise OSError(28, "No space left on device")

    with refused(SetupError, "a tool", root / "tools", "no space left on device", fix="SME2PROF_CACHE"):
        cached(root / "tools" / "one", full, "a tool", fetch=True)
    assert list((root / "tools").iterdir()) == []


@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_nothing_that_is_made_is_for_others_to_write(root: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        cached(root / "tools" / "one", make, "a tool", fetch=True)
    finally:
        os.umask(before)
    made = [root, *root.rglob("*")]
    assert not [path for path in made if not path.is_symlink() and path.stat().st_mode & 0o022]
    assert damage_of(root / "tools" / "one") is None


@pytest.mark.slow
def test_a_runner_planted_in_a_shared_cache_is_not_run(tmp_path, monkeypatch):
    """A runner of somebody else where the kit looks for its own, with a record that fits."""
    shared, it_ran = tmp_path / "shared", tmp_path / "it_ran"
    monkeypatch.setenv("SME2PROF_CACHE", str(shared))
    wheel, compiler = build.installed_sdk(), build.find_compiler()

    def plant(into: Path) -> None:
        into.mkdir()
        (into / "sme2prof-runner").write_text(f"#!/bin/sh\ntouch {it_ran}\necho '{{}}'\n")
        (into / "sme2prof-runner").chmod(0o755)

    cached(build.built_runner(wheel, compiler)[0].parent, plant, "a plant", fetch=True)
    for place in (shared / "runners", shared):
        for mode in (0o777, 0o1777):  # in the latter, others can still add what is not there yet
            place.chmod(mode)
            with refused(SetupError, place, "SME2PROF_CACHE", fix=f"chmod go-w {place}"):
                build.build_runner(wheel, compiler)
            assert checks.cache().status == "fail" and str(place) in checks.cache().found
        assert build.runner_check().status == "fail"
        place.chmod(0o755)
    shared.chmod(0o777)
    if sys.platform == "linux":
        (emulation,) = [check for check in doctor.examine().checks if check.name == "SME2 emulation"]
        says(emulation.found, shared)
        says(emulation.fix, "SME2PROF_CACHE")
    assert not it_ran.exists()


@FOREIGN
def test_a_cache_that_belongs_to_somebody_else(home: Path, root: Path) -> None:
    for place in (root, home.parent, home):
        os.chown(place, A_STRANGER, -1)
        with refused(SetupError, place, A_STRANGER, fix="SME2PROF_CACHE"):
            cached(home, never, "a tool", fetch=True)
        os.chown(place, 0, -1)


def test_a_group_of_one_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fedora's and Debian's users have a group each, and a umask that lets it write."""
    import grp
    import pwd

    own = pwd.getpwuid(tmp_path.stat().st_uid)
    tmp_path.chmod(0o775)
    members: list[str] = []
    monkeypatch.setattr(grp, "getgrgid", lambda number: grp.struct_group((own.pw_name, "x", number, members)))
    cache.check_trusted(tmp_path)
    members.append("somebody")
    with refused(SetupError, fix=f"chmod go-w {tmp_path}"):
        cache.check_trusted(tmp_path)


def test_a_damaged_emulator_is_said_by_who_may_not_fetch(root, monkeypatch, tmp_path):
    def fake(into: Path) -> None:
        (into / "usr/bin").mkdir(parents=True)
        (into / "usr/bin/qemu-aarch64").write_bytes(b"q" * 5000)

    cached(emulated._kept(), fake, "QEMU", fetch=True)
    os.truncate(emulated._kept() / "usr/bin/qemu-aarch64", 100)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SME2PROF_QEMU", raising=False)
    with refused(SetupError, "QEMU", "qemu-aarch64", "has changed"):
        emulated.find_qemu(Path("/runner"), fetch=False)
    assert root.is_dir()
