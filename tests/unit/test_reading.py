"""Files of other people are read only where they are files, of a size that can be, inside of their folder."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import pytest
from said import refused

from model_profiling.core import safe_read
from model_profiling.core.errors import FormatError, InputError


def fifo(path: Path) -> None:
    os.mkfifo(path)


def own_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path may have a hundred characters
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # endless zeros
    except OSError:
        pytest.skip("only root makes devices")


def link(path: Path) -> None:
    path.with_name("target").write_text("{}")
    path.symlink_to("target")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (fifo, "a named pipe"),
        (own_socket, "a socket"),
        (device, "a device"),
        (Path.mkdir, "a folder"),
        (link, "a link"),
        (loop, "a link"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_only_regular_files_are_opened(tmp_path, make, kind):
    make(path := tmp_path / "journal.jsonl")

    with refused(InputError, path, kind):
        safe_read.open_regular(path)
    assert not safe_read.is_regular(path)


def test_a_file_that_the_user_names_may_be_a_link(tmp_path):
    link(path := tmp_path / "named")

    assert safe_read.read_json(path, follow=True) == {}
    assert safe_read.is_regular(path, follow=True)
    fifo(tmp_path / "fifo")
    (tmp_path / "to_fifo").symlink_to("fifo")
    with refused(InputError, "to_fifo", "named pipe"):
        safe_read.read_bytes(tmp_path / "to_fifo", follow=True)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000, "absent"])
def test_a_name_that_no_file_has_is_one_line(tmp_path, name):
    with refused(InputError, tmp_path, fix="path"):
        safe_read.read_bytes(tmp_path / name)
    assert not safe_read.is_regular(tmp_path / name)


def test_a_file_without_end_is_refused_before_it_is_read(tmp_path):
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


def test_honest_json_is_read(tmp_path):
    deep = json.dumps([[["]" * 50, {"[{" * 90: '\\"['}]] * 40])
    content = "\ufeff" + "[" * 40 + deep + "]" * 40
    (tmp_path / "a.json").write_text(content, encoding="utf-8")

    assert safe_read.read_json(tmp_path / "a.json") == json.loads(content[1:])


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
