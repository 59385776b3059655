"""Files between a sweep and its workers: sent once, checked, and never outside of where they belong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.sweep.messages import Hashes, SentFiles


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fill(folder: Path, **held: bytes) -> Path:
    for name, content in held.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_a_listing_leaves_out_what_is_under_way(tmp_path: Path) -> None:
    run = fill(tmp_path / "run", journal_dot_jsonl=b"{}\n", on__a=b"dump", _dot_work__process=b"half")
    (run / ".manifest.json.12.part").write_bytes(b"half")
    (run / "link").symlink_to(run / "on")
    hashes = Hashes()
    assert hashes.listing(run) == {"journal.jsonl": sha256(b"{}\n"), "on/a": sha256(b"dump")}
    (run / "on/a").write_bytes(b"another dump")
    assert hashes.listing(run)["on/a"] == sha256(b"another dump")


def test_a_run_is_the_same_on_the_other_side(tmp_path: Path) -> None:
    """Whatever was there is replaced or removed; only what is lacking is sent."""
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n2\n", manifest_dot_json=b"{}", on__dump=b"new")
    there = fill(tmp_path / "there", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", off__dump=b"old")
    hashes = Hashes()
    sent = SentFiles.of(here, hashes.listing(here), hashes.listing(there))
    assert set(sent.contents) == {"journal.jsonl", "on/dump"}
    sent.lay_out(there, hashes, "worker w")
    assert Hashes().listing(there) == sent.listing
    SentFiles(sent.listing).lay_out(there, hashes, "worker w")  # nothing is lacking, so nothing is read


def test_the_journal_is_written_when_all_it_tells_of_is_there(tmp_path, monkeypatch):
    """A kill in the middle must not leave lines of files that never arrived."""
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", z__dump=b"dump")
    written: list[str] = []
    monkeypatch.setattr("model_profiling.core.files.write_bytes", lambda path, _: written.append(path.name))
    SentFiles.of(here, Hashes().listing(here), {}).lay_out(tmp_path / "there", Hashes(), "worker w")
    assert written == ["dump", "journal.jsonl", "manifest.json"]


@pytest.mark.parametrize("contents", [{"a": b"wrong"}, {}], ids=["forged", "missing"])
def test_what_is_not_what_it_was_called_is_refused(contents: dict[str, bytes], tmp_path: Path) -> None:
    sent = SentFiles({"a": sha256(b"right"), "b": sha256(b"b")}, {"b": b"b", **contents})
    with refused(FormatError, "is not what was sent"):
        sent.lay_out(tmp_path, Hashes(), "worker w")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ".hidden", "a/.ssh/key", "a/../../b", ""])
def test_names_stay_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        SentFiles({name: sha256(b"x")}, {name: b"x"}).lay_out(tmp_path / "run", Hashes(), "worker w")
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    run.mkdir()
    (run / "on").symlink_to(outside)
    with pytest.raises((FormatError, InputError)):
        SentFiles({"on/file": sha256(b"x")}, {"on/file": b"x"}).lay_out(run, Hashes(), "worker w")
    assert not list(outside.iterdir())
