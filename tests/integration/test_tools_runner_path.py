"""The command by which docs/runner.md lets people run the runner by hand."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from model_profiling.core import process

ROOT = Path(__file__).resolve().parents[2]


def test_the_documented_command_finds_the_runner() -> None:
    text = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^.*--help$", text, re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = process.run(["bash", "-c", command], timeout=300, cwd=ROOT, env={"PATH": path})
    assert done.ok, done.stderr
    assert "--etdump" in done.stdout
