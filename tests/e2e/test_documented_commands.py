"""The commands people copy from the documents work, in the order they stand there."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stand_ins import lay_out_checkout

from model_profiling import process
from model_profiling.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "model_profiling" / "pipeline_commands.md"
SETUP = ("make ", "bash ", ". ")
"""Installing is what `make test` itself did just before."""


def _commands(page: Path) -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", *SETUP))]


def _expanded(word: str, folder: Path) -> list[str]:
    """As a shell would."""
    return sorted(str(path) for path in folder.glob(word)) if "*" in word else [word]


def _shortened(config: Path) -> None:
    """Measured for as long as a test may take, not as a person would."""
    content = json.loads(config.read_text())
    content["schedule"]["budget_s"] = 2
    config.write_text(json.dumps(content))


@pytest.mark.skipif(sys.platform != "linux", reason="the page's run directories are those of Linux")
def test_the_workflow_page_runs_from_top_to_bottom(
    tmp_path: Path, sme2prof: Callable[..., process.Completed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts in processes of their own, `sme2prof` in this one: it need not import torch each time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_profiling").symlink_to(ROOT / "model_profiling")
    lay_out_checkout(tmp_path)  # where `setup_repo.sh --from-source` puts one; it is not to be imported
    commands = _commands(PAGE)
    assert len(commands) >= 10
    for line in commands:
        words = [found for word in shlex.split(line) for found in _expanded(word, tmp_path)]
        if words[-1] == "my_run.json" and "generate_config.py" in line:
            (tmp_path / "my_run.json").unlink()
        if words[0] == "sme2prof":
            done = sme2prof(*words[1:])
        else:
            argv = [sys.executable, *words[1:]]
            done = process.run(argv, timeout=300, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
        # Comparing two runs on a noisy machine may find a regression: that is an answer, not a failure.
        accepted = {0, 1, 2} if "compare" in words else {0}
        assert done.returncode in accepted, f"{line}\n{done.tail(20)}"
        assert "unexpected" not in done.stderr, done.stderr
        if words[-1] == "my_run.json" and "--output" in words:
            _shortened(tmp_path / "my_run.json")


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_every_command_and_file_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(r"`?sme2prof ([a-z]+)", text):
        assert name in COMMANDS, f"{page} names sme2prof {name}"
    for path in re.findall(r"\b(?:model_profiling|bench)/[\w/]+\.(?:py|sh|json|md|cpp)\b", text):
        assert (ROOT / path).exists() or "my_" in path, f"{page} names {path}"
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_scripts_print_help_with_any_python_of_the_environment() -> None:
    for script in sorted(
        [*(ROOT / "model_profiling/scripts").glob("*.py"), *(ROOT / "model_profiling/tools").glob("*.py")]
    ):
        done = process.run([sys.executable, script, "--help"], timeout=60, cwd=ROOT, env=dict(os.environ))
        assert done.returncode == 0, f"{script.name}: {done.stderr}"
        assert "usage" in done.stdout.lower()
