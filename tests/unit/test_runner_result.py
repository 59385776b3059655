"""A result comes from a file that another machine may have written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import RunError
from model_profiling.runner.result import read_features, read_result

CONTENT = {
    "schema_version": 1,
    "flags_present": [],
    "flags_masked": [],
    "layout_verified": True,
    "executorch": "1.5.1",
    "threads": 1,
    "warmup": 0,
}


@pytest.mark.parametrize(
    ("times", "fact"), [([5, -1], "time"), ([1 << 62], "time"), ([10**30], "too large a number")]
)
def test_times_that_cannot_be(tmp_path: Path, times: list[int], fact: str) -> None:
    path = tmp_path / "process_runner.json"
    path.write_text(json.dumps({**CONTENT, "iterations_ns": [0, 7]}))
    assert read_result(path).iterations_ns == (0, 7)
    path.write_text(json.dumps({**CONTENT, "iterations_ns": times}))
    with refused(RunError, path, fact):
        read_result(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"flags_present": 1}', "[" * 100_000])
def test_a_report_of_features_that_is_none(text: str) -> None:
    with refused(RunError, "feature"):
        read_features(text)
