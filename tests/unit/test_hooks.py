"""What is checked before a commit, in CI and in a release: it is there, and lint finds what it is for.

Workflows and forms name only commands, options and files that exist; they run on machines that these tests
never see.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import lint
import pytest
from ruamel.yaml import YAML

import model_profiling
from model_profiling.cli.main import COMMANDS, program

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def test_a_commit_is_checked_by_lint_and_so_is_the_suite() -> None:
    """Before each commit, and before the tests."""
    ((hook,),) = (repository["hooks"] for repository in load(ROOT / ".pre-commit-config.yaml")["repos"])
    assert hook["entry"] == "make lint" and hook["always_run"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"(?m)^{target}:.*\blint\b", makefile) for target in ("test", "test-all"))
    checked = {word for words in lint.commands(ROOT).values() for word in words if word.endswith(".yml")}
    assert {ROOT / word for word in checked} == {
        *GITHUB.rglob("*.yml"),
        *(ROOT / "docs/examples/github-actions").glob("*.yml"),
    }


def test_what_no_file_may_contain_is_found(tmp_path: Path) -> None:
    """One file for each rule, and one that breaks none."""
    broken = {
        "docs/index.md": "Get it from https://" + "pypi.example/simple",
        "docs/big.md": "x" * (1 << 20) + "x",
        "tests/numbers.py": "",
        "model_profiling/checks.py": "def f(x: int) -> None:\n    assert x > 0\n",
        "model_profiling/one.py": "def f() -> None:\n    from model_profiling.two import g\n",
        "docs/licences.md": "| numpy |",
    }
    innocent = {
        "model_profiling/two.py": "from model_profiling import one\n",
        "model_profiling/other.py": "def f(x: int | None) -> None:\n    assert x is not None\n",
        "pyproject.toml": '[project]\ndependencies = ["numpy>=1", "scipy"]\noptional-dependencies = {}\n',
    }
    for name, text in {**broken, **innocent}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    found = lint.house_rules(tmp_path)
    assert sorted(line.partition(":")[0] for line in found) == sorted(broken)
    assert "scipy" in found[-1]


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
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
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
    code, changes = tmp_path / "model_profiling" / "_version.py", tmp_path / "CHANGELOG.md"
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
