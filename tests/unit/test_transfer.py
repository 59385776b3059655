"""Files between a sweep and its workers: sent once, checked, and never outside of where they belong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.sweep import messages
from model_profiling.sweep.messages import (
    Blobs,
    Hashes,
    checked_listing,
    contents,
    lay_out,
    pieces,
    read_piece,
)


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
    """Whatever was there is replaced or removed; only what is lacking is asked for."""
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n2\n", manifest_dot_json=b"{}", on__dump=b"new")
    there = fill(tmp_path / "there", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", off__dump=b"old")
    hashes, blobs = Hashes(), Blobs(tmp_path / "blobs")
    listing = hashes.listing(here)
    changed = {name: each for name, each in listing.items() if hashes.listing(there).get(name) != each}
    assert set(changed) == {"journal.jsonl", "on/dump"}
    for sha in blobs.lacking(changed.values()):
        path = next(here / name for name, each in listing.items() if each == sha)
        for offset, piece, size in pieces(path):
            blobs.put(sha, offset, piece, size)
    lay_out(there, listing, blobs, hashes)
    assert Hashes().listing(there) == listing
    blobs.drop(listing.values())
    assert not list(blobs.folder.iterdir())
    lay_out(there, listing, blobs, hashes)  # nothing is lacking, so nothing is read


def test_the_journal_is_written_when_all_it_tells_of_is_there(tmp_path: Path) -> None:
    """A kill in the middle must not leave lines of files that never arrived."""
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", z__dump=b"dump")
    blobs, listing = Blobs(tmp_path / "blobs"), Hashes().listing(here)
    whole = contents(here, listing, 1000)
    del whole[sha256(b"dump")]
    blobs.put_whole(whole)
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(InputError):
        lay_out(there, listing, blobs, Hashes())
    assert Hashes().listing(there) == {}


def test_a_large_file_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PIECE", 4)
    content = b"0123456789"
    path = fill(tmp_path, a=content) / "a"
    found = list(pieces(path))
    assert [(offset, piece) for offset, piece, _ in found] == [(0, b"0123"), (4, b"4567"), (8, b"89")]
    assert b"".join(read_piece(path, offset, 4) for offset in (0, 4, 8)) == content
    blobs, sha = Blobs(tmp_path / "blobs"), sha256(content)
    blobs.put(sha, *found[0])
    assert blobs.lacking([sha]) == [sha]
    with refused(FormatError, "missing"):
        blobs.put(sha, *found[2])
    for each in found:  # again from the beginning
        blobs.put(sha, *each)
    assert blobs.path(sha).read_bytes() == content
    assert list(pieces(fill(tmp_path, empty=b"") / "empty")) == [(0, b"", 0)]


def test_what_is_not_what_it_was_called_is_refused(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path / "blobs")
    with refused(FormatError, sha256(b"right")[:16]):
        blobs.put(sha256(b"right"), 0, b"wrong", 5)
    with refused(FormatError, sha256(b"right")[:16]):
        blobs.put_whole({sha256(b"right"): b"wrong"})
    assert blobs.lacking([sha256(b"right")]) == [sha256(b"right")]
    assert not [path for path in blobs.folder.iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", ".hidden", "a/.ssh/key", "a/../../b", ""])
def test_names_stay_inside(name: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        checked_listing({name: sha256(b"")}, "worker w")
    with refused(FormatError, "SHA-256"):
        checked_listing({"fine": "../../etc"}, "worker w")
    with refused(FormatError, "SHA-256"):
        Blobs(tmp_path).path("../up")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside, run, blobs = tmp_path / "outside", tmp_path / "run", Blobs(tmp_path / "blobs")
    outside.mkdir()
    run.mkdir()
    (run / "on").symlink_to(outside)
    blobs.put_whole({sha256(b"x"): b"x"})
    with pytest.raises((FormatError, InputError)):
        lay_out(run, {"on/file": sha256(b"x")}, blobs, Hashes())
    assert not list(outside.iterdir())
