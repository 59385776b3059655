"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model_profiling import files
from model_profiling.errors import InputError


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


def test_a_full_disk_is_named_and_leaves_nothing(tiny_disk: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*big: no space left on device; free some space"):
        files.write_bytes(tiny_disk / "big", b"x" * 1_000_000)
    assert list(tiny_disk.iterdir()) == []


def test_a_path_through_a_file_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"a part of the path is a file"):
        files.write_text(tmp_path / "file" / "inner" / "x.txt", "text")


def test_nan_never_reaches_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "x.json", {"value": float("nan")})
    assert not list(tmp_path.iterdir())
