"""An int8 program is found by both of its names."""

from __future__ import annotations

from pathlib import Path

from model_profiling.config.reading import parse_config
from model_profiling.core.stdio import under_either_name


def test_either_name_finds_the_file_that_is_there(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "m_xnnpack_int8.pte", tmp_path / "m_xnnpack_q8.pte"
    assert under_either_name(theirs) == theirs, "nothing is there: the name stays for the error message"
    ours.touch()
    assert under_either_name(theirs) == ours
    theirs.touch()
    assert under_either_name(theirs) == theirs
    ours.unlink()
    assert under_either_name(ours) == theirs
    assert under_either_name(tmp_path / "m_xnnpack_fp16.pte").name == "m_xnnpack_fp16.pte"


def test_a_config_with_the_older_name_still_works(tmp_path: Path) -> None:
    (tmp_path / "m_xnnpack_int8.pte").write_bytes(b"a program")
    raw = {
        "model": "m_xnnpack_q8.pte",
        "output_root": "runs",
        "experiments": [{"name": "sme2_on", "sme2": "on"}],
    }
    config, problems = parse_config(raw, folder=tmp_path)
    assert problems == ()
    assert config is not None
    assert config.model == tmp_path / "m_xnnpack_int8.pte"
    assert config.output_root == tmp_path / "runs"
