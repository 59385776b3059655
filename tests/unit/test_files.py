"""Files are written whole or not at all, never through links; others' are read only where they are files."""

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused

from model_profiling.core import files, safe_read
from model_profiling.core.errors import FormatError, InputError


def test_content_of_any_name_appears_only_when_the_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.json"
    files.write_json(target, {"schema_version": 1})
    with pytest.raises(RuntimeError), files.replacing(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == '{\n  "schema_version": 1\n}\n'
    assert [path.name for path in target.parent.iterdir()] == ["result.json"]
    for name in ("n" * 255, "\u00e9" * 127):
        files.write_text(tmp_path / name, "text")
        assert (tmp_path / name).is_file()


def test_permissions_follow_the_umask_which_nobody_asks_for(tmp_path: Path, monkeypatch) -> None:
    old = os.umask(0o027)
    try:
        files.write_text(tmp_path / "report.md", "text")
    finally:
        os.umask(old)
    assert (tmp_path / "report.md").stat().st_mode & 0o777 == 0o640

    def umask(_: int) -> int:
        raise AssertionError

    monkeypatch.setattr(os, "umask", umask)
    files.write_text(tmp_path / "report.md", "text")


def device(path: Path) -> None:
    """A copy of /dev/zero, which has no end."""
    if os.geteuid() != 0:
        pytest.skip("only root makes device nodes")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def own_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have a hundred characters
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def linked(path: Path) -> None:
    path.with_name("target").write_text("{}")
    path.symlink_to("target")


@pytest.mark.parametrize("make", [linked, os.mkfifo, device, os.mkdir])
def test_only_a_regular_file_is_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    source, path = tmp_path / "source", tmp_path / "report.md"
    source.write_text("new")
    make(path)
    there = {found.name for found in tmp_path.iterdir()}
    before = path.lstat()
    with refused(InputError, path, fix="another name"):
        files.write_text(path, "text")
    with refused(InputError, path, fix="another name"):
        files.move(source, path)
    with refused(InputError, path, fix="remove"):
        files.open_in_place(path)
    after = path.lstat()
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
    assert make is not linked or (tmp_path / "target").read_text() == "{}"
    assert {found.name for found in tmp_path.iterdir()} == there


@pytest.mark.parametrize("make", [os.mkfifo, device])
def test_no_device_is_written_to(make: Callable[[Path], None], tmp_path: Path) -> None:
    """A folder that somebody sent may hold a pipe, which waits for ever, or a disk, called `report.md`."""
    with refused(InputError, "/dev/null", "device"):
        files.write_text(Path("/dev/null"), "text")
    make(tmp_path / "report.md")
    with refused(InputError, tmp_path / "report.md", fix="remove"):
        files.write_text(tmp_path / "report.md", "text")
    with refused(InputError, tmp_path / "report.md", "not a regular file"):
        files.sha256(tmp_path / "report.md")


def test_a_link_to_a_device_is_no_device_and_a_journal_with_two_names_is_kept(tmp_path: Path) -> None:
    """A run directory of somebody else may hold one."""
    device(tmp_path / "null")
    (tmp_path / "report.md").symlink_to("null")
    with refused(InputError, tmp_path / "report.md", "link"):
        files.write_text(tmp_path / "report.md", "text")
    (tmp_path / "journal.jsonl").write_text("{}\n")
    os.link(tmp_path / "journal.jsonl", tmp_path / "snapshot.jsonl")
    with refused(InputError, "journal.jsonl", "hard link", fix="copy") as caught:
        files.open_in_place(tmp_path / "journal.jsonl")
    assert "remove" not in caught.value.fix


def test_nothing_is_put_below_a_link_in_a_run_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "exp").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "way").symlink_to("run")
    (run / "exp" / "rounds").symlink_to(tmp_path / "elsewhere")
    with refused(InputError, "exp/rounds", "link"):
        files.real_folder(run, run / "exp" / "rounds" / "more")
    for outside in (tmp_path, run / ".." / "elsewhere", run / "/etc"):
        with refused(InputError, outside, "outside"):
            files.real_folder(run, outside)
    assert files.real_folder(tmp_path / "way", tmp_path / "way" / "exp" / "new").parent.is_dir()


def test_a_full_disk_and_a_path_through_a_file_are_named(tiny_disk: Path, tmp_path: Path) -> None:
    with refused(InputError, tiny_disk / "big", "no space left on device", fix="free"):
        files.write_bytes(tiny_disk / "big", b"x" * 1_000_000)
    assert list(tiny_disk.iterdir()) == []
    (tmp_path / "file").touch()
    with refused(InputError, tmp_path / "file" / "inner", "file"):
        files.write_text(tmp_path / "file" / "inner" / "x.txt", "text")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (own_socket, "a socket"),
        (device, "a device"),
        (Path.mkdir, "a folder"),
        (linked, "a link"),
        (lambda path: path.symlink_to(path.name), "a link"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_only_regular_files_are_opened(tmp_path, make, kind):
    make(path := tmp_path / "journal.jsonl")

    with refused(InputError, path, kind):
        safe_read.open_regular(path)
    assert not safe_read.is_regular(path)


def test_a_file_that_the_user_names_may_be_a_link(tmp_path):
    linked(path := tmp_path / "named")

    assert safe_read.read_json(path, follow=True) == {} and safe_read.is_regular(path, follow=True)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to_fifo").symlink_to("fifo")
    with refused(InputError, "to_fifo", "named pipe"):
        safe_read.read_bytes(tmp_path / "to_fifo", follow=True)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000, "absent"])
def test_a_name_that_no_file_has_is_one_line(tmp_path, name):
    with refused(InputError, tmp_path, fix="path"):
        safe_read.read_bytes(tmp_path / name)
    assert not safe_read.is_regular(tmp_path / name)


def test_a_file_without_end_is_refused_before_it_is_read_and_honest_json_is_read(tmp_path) -> None:
    with (tmp_path / "sparse").open("wb") as made:
        made.truncate(10 << 30)

    with refused(FormatError, "sparse", "more than 512 MiB"):
        safe_read.read_bytes(tmp_path / "sparse")
    (tmp_path / "eleven").write_bytes(b"12345678901")
    assert len(safe_read.read_bytes(tmp_path / "eleven", most=11)) == 11
    with refused(FormatError, "eleven", "more than 10 bytes"):
        safe_read.read_bytes(tmp_path / "eleven", most=10)
    # Files of the kernel say that they are empty.
    if Path("/proc/self/status").exists():
        with refused(FormatError, "/proc/self/status", "more than 10 bytes"):
            safe_read.read_text(Path("/proc/self/status"), most=10)
    deep = json.dumps([[["]" * 50, {"[{" * 90: '\\"['}]] * 40])
    content = "\ufeff" + "[" * 40 + deep + "]" * 40
    (tmp_path / "a.json").write_text(content, encoding="utf-8")

    assert safe_read.read_json(tmp_path / "a.json") == json.loads(content[1:])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nested"),
        ("[" * 65 + "]" * 65, "nested"),
        ('{"a":' * 65 + "1" + "}" * 65, "nested"),
        ('[{"a":' * 33 + "1" + "}]" * 33, "nested"),
        ('["]\\\\", "\\"]",' * 65 + "1" + ', "["]' * 65, "nested"),
        ("1" + "0" * 400, "number"),
        ("1e400", "number"),
        ("NaN", "number"),
        ("{", "JSON"),
        ('"\xff', "JSON"),
    ],
)
def test_json_that_cannot_be_reckoned_with_is_refused(tmp_path, text, said):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))

    with refused(FormatError, "a.json", said, fix="measure again"):
        safe_read.read_json(tmp_path / "a.json", fix="measure again")


def test_a_path_out_of_a_file_stays_inside(tmp_path):
    run, outside = tmp_path / "run", tmp_path / "outside"
    (run / "on").mkdir(parents=True)
    outside.mkdir()
    (outside / "a.etdump").touch()
    (run / "linked").symlink_to(outside)
    (run / "also_on").symlink_to("on")
    (run / "round").symlink_to("round")
    (tmp_path / "way").symlink_to(run)

    for root in (run, tmp_path / "way"):
        assert safe_read.inside(root, "on/a.etdump") == root / "on/a.etdump"
        assert safe_read.inside(root, "also_on/a..b") == root / "also_on/a..b"
    hostile = ("/dev/zero", "../outside/a.etdump", "on/../../outside", "linked/a.etdump", "linked", "C:\\x")
    for name in (*hostile, "", "a\0b"):
        with refused(FormatError, "manifest.json: etdump", repr(name)):
            safe_read.inside(run, name, "manifest.json: etdump")
    with pytest.raises((FormatError, InputError)):
        safe_read.read_bytes(safe_read.inside(run, "round/a"))
