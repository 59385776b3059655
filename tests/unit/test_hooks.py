"""What is checked before a commit, in CI and in a release is what the tests check; and it is there.

`.pre-commit-config.yaml` is the one list of checks: its commands are run here. Workflows and forms name only
commands, options and files that exist; they run on machines that these tests never see.
"""

from __future__ import annotations

import fcntl
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from ruamel.yaml import YAML

import model_profiling
from model_profiling.cli.main import COMMANDS, program
from model_profiling.runner.cache import make_place

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
HOUSE_RULES = "house-rules"


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def hooks() -> dict[str, list[str]]:
    """Each hook's command by its id, with the tools of the environment that runs the tests."""
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    return {
        hook["id"]: [
            word.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
            for word in shlex.split(hook["entry"])
        ]
        for hook in repository["hooks"]
    }


@pytest.mark.parametrize("name", [name for name in hooks() if name != HOUSE_RULES])
def test_what_a_commit_is_checked_for_holds(name: str) -> None:
    kept = make_place("tests") / "mypy"
    kept.mkdir(exist_ok=True)
    # mypy believes what it kept of a file by the file's content and its own version, wherever the clone is.
    environment = {**os.environ, "MYPY_CACHE_DIR": str(kept)}
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            hooks()[name], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=400
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_hooks_are_all_that_the_house_asks_for() -> None:
    """Tools of `.venv` on the whole repository, not on what changes alone; and the rules no tool knows."""
    commands = {name: " ".join(words[1:]) for name, words in hooks().items()}
    assert {"ruff-check", "ruff-format", "mypy", "lint-imports", HOUSE_RULES} <= set(commands)
    assert commands[HOUSE_RULES].split()[-1] == "tests/unit/test_house_rules.py"
    for hook in load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]:
        assert hook["language"] == "system" and hook["pass_filenames"] is False
        assert hook["entry"].startswith(".venv/bin/")
    checked = {word for name in commands for word in commands[name].split() if word.startswith(".github/")}
    assert checked == {str(path.relative_to(ROOT)) for path in GITHUB.rglob("*.yml")}


def _steps() -> Iterator[tuple[str, str]]:
    """Every command of the workflows, line by line, with the workflow it is in."""
    for path in sorted((GITHUB / "workflows").glob("*.yml")):
        for job in load(path)["jobs"].values():
            for step in job["steps"]:
                for line in str(step.get("run", "")).splitlines():
                    yield path.name, line


def test_every_command_of_the_workflows_exists() -> None:
    scripts = re.findall(
        r"^(sme2prof[\w-]*) = ", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    lines = list(_steps())
    assert len(lines) > 10
    for workflow, line in lines:
        words = shlex.split(line)
        name = words[0].rpartition("/")[2]
        known = name in {"python", "make", "bash", "gh", "git", "mkdir", "cd", *scripts}
        assert known, f"{workflow}: {line}"
        if name == "make":
            assert words[1] in targets, line
        if name == "sme2prof":
            assert_command_exists(words[1:])
        for word in words[1:]:
            if re.match(r"(?:tests|model_profiling|requirements|\.ci)/", word):
                assert (ROOT / word).exists(), f"{workflow}: {word}"


def assert_command_exists(words: list[str]) -> None:
    """What follows `sme2prof`, as far as the command's name and its options go."""
    if words == ["--version"]:
        return
    assert words[0] in COMMANDS, words
    group = program()
    command = group.get_command(click.Context(group), words[0])
    assert command is not None
    options = {option for param in command.params for option in param.opts}
    assert {word for word in words if word.startswith("--")} <= options, words


@pytest.mark.parametrize(
    "form", sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_forms_ask_for_what_the_kit_can_say(form: Path) -> None:
    text = form.read_text(encoding="utf-8")
    for command in re.findall(r"`(sme2prof [^`]+)`", text):
        assert_command_exists(shlex.split(command)[1:])
    assert form.stem == "config" or "`sme2prof doctor --json`" in text


def test_python_versions_of_the_workflow_are_those_that_are_supported() -> None:
    jobs = load(GITHUB / "workflows" / "tests.yml")["jobs"]
    rows = jobs["linux"]["strategy"]["matrix"]["include"]
    assert sorted({row["python"] for row in rows}) == ["3.10", "3.11", "3.12", "3.13"]
    assert {row["machine"] for row in rows} == {"x86_64", "aarch64"}
    assert jobs["macos"]["runs-on"].startswith("macos-")


def test_only_the_job_that_publishes_may_ask_for_an_identity() -> None:
    """Trusted publishing: no secret is named anywhere, and what is published was built by the job before."""
    release = load(GITHUB / "workflows" / "release.yml")
    assert list(release["on"]["push"]) == ["tags"] and release["permissions"] == {"contents": "read"}
    asked = {name: job["permissions"] for name, job in release["jobs"].items() if "permissions" in job}
    assert asked == {"publish": {"id-token": "write"}, "page": {"contents": "write"}}
    assert release["jobs"]["publish"]["needs"] == ["build", "alone"]
    assert release["jobs"]["page"]["needs"] == "publish"
    for path in (GITHUB / "workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        assert "secrets." not in text
        assert set(re.findall(r"uses: ([\w-]+)/", text)) <= {"actions", "pypa"}


def test_actions_are_commits_and_what_is_published_is_built_with_locked_packages() -> None:
    """A tag of an action can be moved; a commit cannot. Each has one commit everywhere."""
    uses: dict[str, set[str]] = {}
    for path in (GITHUB / "workflows").glob("*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses:" in line:
                found = re.fullmatch(r"\s+- uses: ([\w/-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line)
                assert found, f"{path.name}: {line}"
                uses.setdefault(found[1], set()).add(found[2])
    assert all(len(commits) == 1 for commits in uses.values()), uses
    steps = load(GITHUB / "workflows" / "release.yml")["jobs"]["build"]["steps"]
    installs = [step["run"] for step in steps if "pip install" in step.get("run", "")]
    assert installs and all("--require-hashes" in line for line in installs)
    assert any(step.get("run") == "python -m build --no-isolation" for step in steps)


def test_a_release_is_its_tag_its_version_and_its_changes(tmp_path: Path) -> None:
    problems = runpy.run_path(str(ROOT / ".ci" / "check_release.py"))["problems"]
    (tmp_path / "model_profiling").mkdir()
    code, changes = tmp_path / "model_profiling" / "__init__.py", tmp_path / "CHANGELOG.md"
    code.write_text('__version__ = "1.2.0"\n')
    changes.write_text("# Changelog\n\n## Unreleased\n\n## 1.2.0, 2026-12-01\n\n- All.\n")
    assert problems("v1.2.0", tmp_path) == []
    assert "the tag is v1.2.1" in problems("v1.2.1", tmp_path)[0]
    changes.write_text("# Changelog\n\n## 1.2.0\n")
    assert "no section '## 1.2.0, YYYY-MM-DD'" in problems("v1.2.0", tmp_path)[0]
    code.write_text('__version__ = "1.2.0.dev0"\n')
    assert "is no version to release" in problems("v1.2.0.dev0", tmp_path)[0]


def test_the_changelog_has_a_place_for_what_comes_and_knows_the_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    numbers = [heading.partition(",")[0] for heading in headings[1:]]
    version = model_profiling.__version__
    assert ("dev" in version) == (version not in numbers)
