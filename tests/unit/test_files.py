"""Files are written whole or not at all, never through links, never in place of what is no file."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused

from model_profiling.core import files
from model_profiling.core.errors import InputError


def test_content_appears_only_when_the_block_succeeds(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "result.json"
    files.write_json(target, {"schema_version": 1})
    with pytest.raises(RuntimeError), files.replacing(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == '{\n  "schema_version": 1\n}\n'
    assert [path.name for path in target.parent.iterdir()] == ["result.json"]


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        files.write_text(tmp_path / "report.md", "text")
    finally:
        os.umask(old)
    assert (tmp_path / "report.md").stat().st_mode & 0o777 == 0o640


def test_nothing_asks_for_the_umask_which_belongs_to_all_threads(tmp_path, monkeypatch):
    def umask(_: int) -> int:
        raise AssertionError

    monkeypatch.setattr(os, "umask", umask)
    files.write_text(tmp_path / "report.md", "text")


def test_a_name_of_full_length_can_be_written(tmp_path: Path) -> None:
    for name in ("n" * 255, "\u00e9" * 127):
        files.write_text(tmp_path / name, "text")
    assert len(list(tmp_path.iterdir())) == 2


def device(path: Path) -> None:
    """A copy of /dev/null."""
    if os.geteuid() != 0:
        pytest.skip("only root makes device nodes")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def link(path: Path) -> None:
    path.symlink_to(path.with_name("victim"))


@pytest.mark.parametrize("make", [link, os.mkfifo, device, os.mkdir])
def test_only_a_regular_file_is_replaced(make: Callable[[Path], None], tmp_path: Path) -> None:
    victim, source, path = tmp_path / "victim", tmp_path / "source", tmp_path / "report.md"
    victim.write_text("whole")
    source.write_text("new")
    make(path)
    before = path.lstat()
    with refused(InputError, path, fix="another name"):
        files.write_text(path, "text")
    with refused(InputError, path, fix="another name"):
        files.move(source, path)
    with refused(InputError, path, fix="remove"):
        files.open_in_place(path)
    after = path.lstat()
    assert (victim.read_text(), after.st_mode, after.st_ino) == ("whole", before.st_mode, before.st_ino)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["report.md", "source", "victim"]


def test_a_device_that_a_user_names_is_written_to(tmp_path: Path) -> None:
    device(tmp_path / "null")
    files.write_out(tmp_path / "null", "text")
    assert stat.S_ISCHR((tmp_path / "null").lstat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


def test_a_pipe_that_a_user_names_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    files.write_out(pipe, "text")
    reader.join(timeout=20)
    assert (read, pipe.is_fifo()) == (["text"], True)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_an_open_file_that_a_user_names_is_written_on(folder: str, tmp_path: Path) -> None:
    """As `>(cat)` of a shell names a pipe; of a file what was there before stays."""
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before ")
        log.flush()
        files.write_out(Path(f"{folder}/{log.fileno()}"), "text")
    assert (tmp_path / "log").read_text() == "before text"
    with refused(InputError, "/999", "bad file descriptor"):
        files.write_out(Path(f"{folder}/999"), "text")


def test_a_link_to_a_device_is_no_device(tmp_path: Path) -> None:
    """A run directory of somebody else may hold one."""
    device(tmp_path / "null")
    (tmp_path / "report.md").symlink_to("null")
    with refused(InputError, tmp_path / "report.md", "link"):
        files.write_out(tmp_path / "report.md", "text")


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


def test_a_full_disk_is_named_and_leaves_nothing(tiny_disk: Path) -> None:
    with refused(InputError, tiny_disk / "big", "no space left on device", fix="free"):
        files.write_bytes(tiny_disk / "big", b"x" * 1_000_000)
    assert list(tiny_disk.iterdir()) == []


def test_a_path_through_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused(InputError, tmp_path / "file" / "inner", "file"):
        files.write_text(tmp_path / "file" / "inner" / "x.txt", "text")


def test_nan_never_reaches_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "x.json", {"value": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_journal_with_two_names_is_not_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("{}\n")
    os.link(tmp_path / "journal.jsonl", tmp_path / "snapshot.jsonl")
    with refused(InputError, "journal.jsonl", "hard link", fix="copy") as caught:
        files.open_in_place(tmp_path / "journal.jsonl")
    assert "remove" not in caught.value.fix
