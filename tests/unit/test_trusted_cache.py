"""What is run from the cache: only what nobody else can have put there, and only as it was made."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_profiling import process
from model_profiling.doctor import checks, examination
from model_profiling.errors import SetupError
from model_profiling.runner import build, cache, cache_record, on_path, readiness, sdk, trusted_folder
from model_profiling.runner.cache import cached, confirm, damage_of, take_remade
from model_profiling.targets import qemu

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
    take_remade()
    yield tmp_path / "cache"
    take_remade()


@pytest.fixture
def home(root: Path) -> Path:
    """An entry of a program, its library and a link to that."""
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
    "truncated program": (lambda home: os.truncate(home / PROGRAM, 9), "bin/program has 9 of 25 bytes"),
    "truncated library": (lambda home: os.truncate(home / LIBRARY, 0), "lib/libone.so has 0 of 10,240 bytes"),
    "a bit of a library": (lambda home: flip(home / LIBRARY), "lib/libone.so is not as it was written"),
    "a folder for a program": (
        lambda home: ((home / PROGRAM).unlink(), (home / PROGRAM).mkdir()),
        "bin/program is a folder",
    ),
    "missing library": (lambda home: (home / LIBRARY).unlink(), "lib/libone.so is missing"),
    "no longer a program": (lambda home: (home / PROGRAM).chmod(0o644), "bin/program has mode 644, not 755"),
    "another library": (lambda home: (home / "lib/new.so").touch(), "lib/new.so is in it and was not"),
    "a link for a file": (lambda home: swap(home / PROGRAM, Path("/bin/true")), "bin/program is a link"),
    "a link elsewhere": (lambda home: swap(home / "lib/libone.so.1", Path("/x")), "libone.so.1 leads else"),
    "an open folder": (lambda home: (home / "lib").chmod(0o777), "lib in it is no folder of this user's"),
    "an open entry": (lambda home: home.chmod(0o777), "it is no folder of this user's alone"),
    "half a record": (lambda home: os.truncate(home / cache_record.RECORD, 40), "its record cannot be read"),
    "an open record": (lambda home: (home / cache_record.RECORD).chmod(0o666), "others can write its record"),
    "no record": (lambda home: (home / cache_record.RECORD).unlink(), "nothing says what it held"),
    "another's record": (
        lambda home: (home / cache_record.RECORD).write_text('{"schema_version": 1, "files": [[1]]}'),
        "is no record of it",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_made_again_once_and_that_is_said(home: Path, kind: str) -> None:
    damage, said = DAMAGE[kind]
    for known in (True, False):
        damage(home)
        if not known:  # as another process meets it
            cache._compared.clear()
        with pytest.raises(SetupError, match=r"a tool in the cache is damaged: .*the next run .* makes"):
            cached(home, never, "a tool", fetch=False)
        assert cached(home, make, "a tool", fetch=True) == home
        (note,) = take_remade()
        assert note.startswith("a tool in the cache was damaged (") and note.endswith("and was made again")
        assert said in note
        assert process.run([home / PROGRAM], timeout=10).stdout == "as it was\n"
        assert cached(home, never, "a tool", fetch=True) == home and not take_remade()
    assert [entry.name for entry in home.parent.iterdir()] == ["one"]


def test_a_link_as_entry_is_replaced_and_what_it_leads_to_stays(home: Path, tmp_path: Path) -> None:
    """Even to a whole entry: it may be one that somebody else keeps elsewhere."""
    home.rename(tmp_path / "elsewhere")
    home.symlink_to(tmp_path / "elsewhere")
    assert cached(home, make, "a tool", fetch=True) == home
    assert "it is a link" in take_remade()[0]
    assert not home.is_symlink() and (tmp_path / "elsewhere" / PROGRAM).is_file()


def test_large_entries_are_hashed_where_a_file_is_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_record, "_HASHED_EACH_TIME", 0)
    hashed: list[Path] = []
    real = cache_record.files.sha256
    monkeypatch.setattr(cache_record.files, "sha256", lambda path: hashed.append(path) or real(path))
    cache._compared.clear()
    assert damage_of(home) is None and hashed == []
    flip(home / LIBRARY)
    assert damage_of(home) == f"{LIBRARY} is not as it was written" and hashed == [home / LIBRARY]


def test_once_in_a_process_unless_something_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert damage_of(home) is None
    monkeypatch.setattr(cache, "check_entry", never)
    assert damage_of(home) is None and cached(home, never, "a tool", fetch=True)
    confirm(home / PROGRAM)
    (home / PROGRAM).touch()
    with pytest.raises(AssertionError):
        damage_of(home)


def test_a_program_that_changes_during_a_run_is_not_launched(home: Path) -> None:
    confirm(home / PROGRAM, Path("/bin/sh"))
    os.truncate(home / PROGRAM, 3)
    with pytest.raises(SetupError, match=r"tools/one was changed while .*: bin/program has 3.*; .*--resume"):
        confirm(home / PROGRAM)


def test_damaged_at_once_is_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(home: Path, what: str) -> None:
        cache_record.write_entry_record(home, what)
        os.truncate(home / LIBRARY, 4096)

    monkeypatch.setattr(cache, "write_entry_record", forgetful)
    with pytest.raises(SetupError, match=r"made and is damaged at once: .*; check the disk of .*one"):
        cached(root / "tools" / "one", make, "a tool", fetch=True)
    assert not take_remade()


def test_what_cannot_be_made_again_says_what_is_wrong_with_the_old_one(home: Path) -> None:
    """An entry of an earlier version of the kit, on a machine that has no network now."""

    def offline(_: Path) -> None:
        raise SetupError("pip cannot get it: no network", "check the connection")

    (home / cache_record.RECORD).unlink()
    said = r"a tool in the cache is not used \(.*an earlier version made it\), and could not .*: pip cannot"
    with pytest.raises(SetupError, match=said) as caught:
        cached(home, offline, "a tool", fetch=True)
    assert caught.value.fix == "check the connection" and (home / PROGRAM).is_file()
    with pytest.raises(SetupError, match=r"^pip cannot get it"):
        cached(home.with_name("two"), offline, "a tool", fetch=True)


def test_of_two_that_mend_at_once_neither_removes_the_others(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert mended.stdout is not None
    inode = int(mended.stdout.readline())
    made.set()
    first.join()
    mended.stdout.close()
    assert mended.wait() == 0 and home.stat().st_ino == inode, "it is the one that is being used"


def test_a_full_disk_or_a_kill_leaves_no_entry(root: Path) -> None:
    def full(into: Path) -> None:
        make(into)
        raise OSError(28, "No space left on device")

    with pytest.raises(
        SetupError, match=r"cannot keep a tool in .*/tools: no space left on device; make room"
    ):
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


def test_a_runner_planted_in_a_shared_cache_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner of somebody else where the kit looks for its own, with a record that fits."""
    shared, it_ran = tmp_path / "shared", tmp_path / "it_ran"
    monkeypatch.setenv("SME2PROF_CACHE", str(shared))
    wheel, compiler = sdk.installed_sdk(), build.find_compiler()

    def plant(into: Path) -> None:
        into.mkdir()
        (into / "sme2prof-runner").write_text(f"#!/bin/sh\ntouch {it_ran}\necho '{{}}'\n")
        (into / "sme2prof-runner").chmod(0o755)

    cached(build._home(wheel, compiler), plant, "a plant", fetch=True)
    cache._compared.clear()
    for place in (shared / "runners", shared):
        for mode in (0o777, 0o1777):  # in the latter, others can still add what is not there yet
            place.chmod(mode)
            refusal = rf"other users can write to {place}, .*set SME2PROF_CACHE .*`chmod go-w {place}`"
            with pytest.raises(SetupError, match=refusal):
                build.build_runner(wheel, compiler)
            assert checks.cache().status == "fail" and str(place) in checks.cache().found
        assert readiness._of_cache(wheel, compiler).status == "fail"
        place.chmod(0o755)
    shared.chmod(0o777)
    if sys.platform == "linux":
        emulation, _ = examination._emulator()
        assert "other users can write" in emulation.found and "SME2PROF_CACHE" in emulation.fix
    assert not it_ran.exists()


def test_a_folder_on_the_way_that_others_can_write_to(home: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    try:
        with pytest.raises(SetupError, match=rf"other users can write to {tmp_path}, "):
            cached(home, never, "a tool", fetch=False)
        tmp_path.chmod(0o1777)
        assert cached(home, never, "a tool", fetch=False) == home, "as in /tmp, each has only their own"
    finally:
        tmp_path.chmod(0o755)


@FOREIGN
def test_what_belongs_to_somebody_else(home: Path, root: Path, tmp_path: Path) -> None:
    for place in (root, home.parent):
        os.chown(place, A_STRANGER, -1)
        with pytest.raises(SetupError, match=rf"{place} belongs to user 12345, .*; set SME2PROF_CACHE to"):
            cached(home, never, "a tool", fetch=True)
        os.chown(place, 0, -1)
    for part in (home, home / PROGRAM, home / "lib"):
        os.chown(part, A_STRANGER, -1)
        assert cached(home, make, "a tool", fetch=True) == home
        assert len(take_remade()) == 1 and home.stat().st_uid == 0
    # A link of somebody else in a folder where everybody puts things, to a cache that is all right.
    (tmp_path / "everybody").mkdir()
    (tmp_path / "everybody").chmod(0o1777)
    link = tmp_path / "everybody" / "link"
    link.symlink_to(root)
    trusted_folder.check_trusted(link / "tools")
    os.chown(link, A_STRANGER, -1, follow_symlinks=False)
    with pytest.raises(SetupError, match=rf"{link} belongs to user 12345"):
        trusted_folder.check_trusted(link / "tools")


def test_links_on_the_way_are_looked_at_where_they_lead(root: Path, home: Path, tmp_path: Path) -> None:
    aside = tmp_path / "a" / "b"
    aside.mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b/../b/./back")
    (aside / "back").symlink_to(root)
    trusted_folder.check_trusted(tmp_path / "link" / "tools")
    (tmp_path / "a").chmod(0o777)
    with pytest.raises(SetupError, match=rf"other users can write to {tmp_path / 'a'}, "):
        trusted_folder.check_trusted(tmp_path / "link" / "tools")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(SetupError, match="leads through links without end"):
        trusted_folder.check_trusted(tmp_path / "round")
    trusted_folder.check_trusted(tmp_path / "not" / "there" / "yet")
    assert home.is_dir()


def test_a_group_of_one_is_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fedora's and Debian's users have a group each, and a umask that lets it write."""
    import grp
    import pwd

    own = pwd.getpwuid(tmp_path.stat().st_uid)
    folder = tmp_path / "private"
    folder.mkdir()
    folder.chmod(0o775)
    members: list[str] = []
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group(("own", "x", own.pw_gid, members)))
    monkeypatch.setattr(pwd, "getpwall", lambda: [own])
    os.chown(folder, -1, own.pw_gid)
    trusted_folder.check_trusted(folder)
    monkeypatch.setattr(pwd, "getpwall", never)  # it may take seconds, and is asked before every launch
    trusted_folder.check_trusted(folder)
    trusted_folder._is_private_group.cache_clear()
    monkeypatch.setattr(pwd, "getpwall", lambda: [own])
    members.append("somebody")
    with pytest.raises(SetupError, match="other users can write to"):
        trusted_folder.check_trusted(folder)
    trusted_folder._is_private_group.cache_clear()


def test_a_damaged_emulator_is_said_by_who_may_not_fetch(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fake(into: Path) -> None:
        (into / "usr/bin").mkdir(parents=True)
        (into / "usr/bin/qemu-aarch64").write_bytes(b"q" * 5000)

    cached(qemu._kept(), fake, "QEMU", fetch=True)
    os.truncate(qemu._kept() / "usr/bin/qemu-aarch64", 100)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SME2PROF_QEMU", raising=False)
    with pytest.raises(SetupError, match=r"QEMU in the cache is damaged: .*/qemu-aarch64 has 100 of 5,000"):
        qemu.find_qemu(Path("/runner"), fetch=False)
    assert root.is_dir()


def test_programs_are_not_taken_from_where_one_stands_or_from_where_anybody_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "open", "good"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "qemu-aarch64").write_text("#!/bin/sh\n")
        (tmp_path / folder / "qemu-aarch64").chmod(0o755)
    (tmp_path / "open").chmod(0o777)
    monkeypatch.chdir(tmp_path / "here")
    for relative in ("", ".", "../here"):
        monkeypatch.setenv("PATH", f"{relative}:{tmp_path / 'open'}:{tmp_path / 'good'}")
        refused: list[str] = []
        assert on_path.on_path("qemu-aarch64", refused) == tmp_path / "good" / "qemu-aarch64"
        assert on_path.path_folders() == [tmp_path / "good"]
        assert "relative path" in refused[0] and "anybody can write to that folder" in refused[1]
    monkeypatch.setenv("PATH", ".")
    assert on_path.on_path("qemu-aarch64") is None
