"""The runner's exit codes stand in its source, in the kit's advice and in the documentation: one table."""

from __future__ import annotations

import re
from pathlib import Path

from model_profiling.targets import collect

ROOT = Path(__file__).resolve().parents[2]


def test_source_advice_and_documentation_know_the_same_exit_codes() -> None:
    source = (ROOT / "model_profiling" / "runner" / "failure.h").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"(?m)^  k\w+ = (\d+),", source)}
    assert len(codes) > 10
    assert codes == {*collect._EXIT_CODES, collect._OUT_OF_MEMORY, collect._TIME_LIMIT}
    documented = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    assert codes == {int(code) for code in re.findall(r"(?m)^\| (\d+) \| ", documented)} - {0}
