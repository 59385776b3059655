"""A run whose dump, kernels and folder are named by somebody who means harm: every command shows it, and no
terminal obeys it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pages import assert_harmless
from recorded_runs import EMULATED, PROGRAM, dumps_in, emulated_experiments, replay

# As long as the word it stands for, so that the dump's tables still fit.
OPERATOR, EVENT = b"Convolution", "\x1b[2J\u202e\x07a\x9b"
KERNEL, NAMED = "kai_run_matmul", "kai_run_\x1b]0;x\x07\u202e_matmul"


def recorded(folder: Path) -> Path:
    """What was recorded, as a device would have told it that lies."""
    made = Path(shutil.copytree(EMULATED, folder / "recorded"))
    assert len(EVENT.encode()) == len(OPERATOR)
    for dump in dumps_in(made):
        content = dump.read_bytes()
        assert OPERATOR in content
        dump.write_bytes(content.replace(OPERATOR, EVENT.encode()))
    for path in made.glob("*.json*"):
        path.write_text(path.read_text().replace(KERNEL, json.dumps(NAMED)[1:-1]))
    return made


def test_no_command_and_no_page_passes_hostile_names_on(sme2prof, tmp_path: Path) -> None:
    run_dir = tmp_path / "r\x1b[2Jun"
    replay(recorded(tmp_path), run_dir, emulated_experiments(), program=PROGRAM)
    for words in (("analyze",), ("report",), ("validate",), ("analyze", "--json"), ("compare", run_dir)):
        done = sme2prof(*words, run_dir)
        assert done.returncode in (0, 1), done.stderr
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
    shown = sme2prof("analyze", run_dir).stdout
    assert "\\u001b[2J\\u202e\\u0007a\\u009b (NHWC" in shown, "the name is there, to be seen"
    pages = list(run_dir.rglob("*.md"))
    assert {page.name for page in pages} >= {"report.md", "kernel_view.md"}
    for page in pages:
        assert_harmless(page.read_text())
    assert "kai_run_\\u001b]0;x" in (run_dir / "kernel_view.md").read_text()
    missing = sme2prof("analyze", tmp_path / "no\x1b]0;such\x07")
    assert missing.returncode == 2 and "no\\u001b]0;such" in missing.stderr
    assert_harmless(missing.stderr)
