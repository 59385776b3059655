"""What a worker offers, and the archives that travel between it and a sweep."""

import io
import stat
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import FormatError, InputError, SetupError
from model_profiling.sweep import worker
from model_profiling.sweep.worker import nanny_options, pack, pack_program, run_worker, unpack


def test_a_worker_offers_one_of_each_device_and_says_if_nobody_answers(tmp_path, monkeypatch):
    devices = ("host", "emulated", "android:S1", "ssh:board", "android:S1")
    offered = nanny_options("w", devices, tmp_path)
    assert offered["resources"] == dict.fromkeys(devices, 1) and offered["nthreads"] == 4
    for device in ("auto", "android", "ssh:", "teapot", "host:1"):
        with refused(InputError, device, fix="android:SERIAL"):
            run_worker("127.0.0.1:1", (device,), None, "127.0.0.1", print)
    pytest.importorskip("distributed")
    monkeypatch.setattr(worker, "_CONNECT_S", 1)
    # In another thread, because a browser of other tests may keep a loop running in this one.
    with ThreadPoolExecutor(1) as pool, refused(SetupError, "cannot join 127.0.0.1:1", fix="dask scheduler"):
        words = "127.0.0.1:1", ("host",), None, "127.0.0.1", print
        pool.submit(run_worker, *words).result()


def test_a_run_is_the_same_at_home_and_names_its_place_there(tmp_path: Path) -> None:
    run, home = tmp_path / "task" / "run", tmp_path / "home" / "run"
    (run / "on").mkdir(parents=True)
    (run / "manifest.json").write_text(f'{{"output_root": "{run}"}}')
    (run / "on" / "dump").write_bytes(bytes(range(256)))
    archive = pack(run, [run / "manifest.json", run / "on" / "dump"], {run: home})
    home.mkdir(parents=True)
    (home / "left").write_text("of an earlier try")
    assert unpack(archive, home) == home
    assert (home / "manifest.json").read_text() == f'{{"output_root": "{home}"}}'
    assert (home / "on" / "dump").read_bytes() == bytes(range(256))
    assert {path.name for path in home.iterdir()} == {"manifest.json", "on"}
    assert {path.name for path in home.parent.iterdir()} == {"run"}


def test_archives_take_along_what_belongs_and_never_fill_the_disk(tmp_path, monkeypatch):
    for name in ("a.pte", "a.pte.etrecord", "a.pte.json", "b.pte"):
        (tmp_path / name).write_text(name)
    made = unpack(pack_program(tmp_path / "a.pte"), tmp_path / "there")
    assert {path.name for path in made.iterdir()} == {"a.pte", "a.pte.etrecord", "a.pte.json"}
    monkeypatch.setattr(worker, "_MOST_BYTES", 10)
    with refused(FormatError, "more than a run can hold"):
        unpack(packed("large"), tmp_path / "run")


def packed(name: str, kind: int = stat.S_IFREG) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = (kind | 0o644) << 16
        archive.writestr("good", "good")
        archive.writestr(member, "/etc/passwd")
    return content.getvalue()


@pytest.mark.parametrize(
    "archive", [packed("whole")[:-30], packed("whole").replace(b"/etc", b"/usr"), b"nothing"]
)
def test_a_damaged_archive_replaces_nothing(archive: bytes, tmp_path: Path) -> None:
    home = tmp_path / "runs" / "one"
    home.mkdir(parents=True)
    (home / "journal.jsonl").write_text("measured before")
    with refused(FormatError, "a worker sent"):
        unpack(archive, home)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["measured before"]
    assert not list(tmp_path.glob("**/.*"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../out", stat.S_IFREG),
        ("a/../../out", stat.S_IFREG),
        ("/tmp/out", stat.S_IFREG),
        ("link", stat.S_IFLNK),
        ("pipe", stat.S_IFIFO),
    ],
)
def test_whatever_an_archive_names_is_a_plain_file_inside(name: str, kind: int, tmp_path: Path) -> None:
    home = unpack(packed(name, kind), tmp_path / "runs" / "one")
    written = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert len(written) == 2 and all(path.is_relative_to(home) for path in written)
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in written)
