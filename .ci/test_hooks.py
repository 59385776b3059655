"""What is checked before a commit, in CI and in a release: it is there, and lint finds what it is for.

Workflows and forms name only commands, options and files that exist; they run on machines that these tests
never see.
"""

import ast
import inspect
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import lint
import pytest
from conftest import missing
from ruamel.yaml import YAML
from working_tree import ROOT, tracked

import model_profiling
from model_profiling.cli.main import COMMANDS, program
from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import compilers
from model_profiling.runner.machine import FILES
from model_profiling.targets import remote
from model_profiling.targets.remote import android, scripts
from model_profiling.targets.remote.shell import LinkLost, Shell

GITHUB = ROOT / ".github"
EXAMPLES = ROOT / "docs" / "examples" / "github-actions"


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def test_a_commit_is_checked_by_lint_and_so_is_the_suite() -> None:
    ((hook,),) = (repository["hooks"] for repository in load(ROOT / ".pre-commit-config.yaml")["repos"])
    assert hook["entry"] == "make lint" and hook["always_run"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"(?m)^{target}:.*\blint\b", makefile) for target in ("test", "test-all"))
    checked = {word for words in lint.commands(ROOT).values() for word in words if word.endswith(".yml")}
    assert {ROOT / word for word in checked} == {*GITHUB.rglob("*.yml"), *EXAMPLES.glob("*.yml")}


def test_what_no_file_may_contain_is_found(tmp_path: Path) -> None:
    broken = {
        "docs/index.md": "Get it from https://" + "pypi.example/simple",
        "docs/big.md": "x" * (1 << 20) + "x",
        "tests/numbers.py": "",
        "model_profiling/checks.py": "def f(x: int) -> None:\n    assert x > 0\n",
        "model_profiling/crossing.py": 'import re\nFOUND = re.compile(r"(?m)^\\s*voltage: ([0-9]+)")\n',
        "model_profiling/nested.py": 'WORDS = r"(?:\\w+ ?)+end"\n',
        "model_profiling/one.py": "def f() -> None:\n    from model_profiling.two import g\n",
        "model_profiling/telling.py": 'def f(said: str) -> bool:\n    return "run it again" in said\n',
        "docs/reference/licences.md": "| numpy |",
    }
    innocent = {
        "model_profiling/two.py": "from model_profiling import one\n",
        "model_profiling/other.py": "def f(x: int | None) -> None:\n    assert x is not None\n",
        "model_profiling/bounded.py": 'WORDS = r"(?m)^[ \\t]*(?:\\w{1,99} ?)+\\s{0,9}[^\\n]*;\\s*"\n',
        "model_profiling/targets/log.py": 'def f(log: str) -> bool:\n    return "No such file" in log\n',
        "pyproject.toml": '[project]\ndependencies = ["numpy>=1", "scipy"]\noptional-dependencies = {}\n',
    }
    for name, text in {**broken, **innocent}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
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
    cited = tmp_path / "CITATION.cff"
    cited.write_text("title: Kit\nversion: 1.1.0\ndate-released: 2026-12-01\n")
    assert "CITATION.cff must have version: 1.2.0" in problems("v1.2.0", tmp_path)[0]
    cited.write_text("title: Kit\nversion: 1.2.0\ndate-released: 2026-12-01\n")
    assert problems("v1.2.0", tmp_path) == []
    assert "the tag is v1.2.1" in problems("v1.2.1", tmp_path)[0]
    changes.write_text("# Changelog\n\n## 1.2.0\n")
    assert "no section '## 1.2.0, YYYY-MM-DD'" in problems("v1.2.0", tmp_path)[0]
    code.write_text('__version__ = "1.2.0.dev0"\n')
    assert "is no version to release" in problems("v1.2.0.dev0", tmp_path)[0]
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    numbers = [heading.partition(",")[0] for heading in headings[1:]]
    version = model_profiling.__version__
    assert ("dev" in version) == (version not in numbers)
    assert "dev" in version or problems(f"v{version}") == []


def test_only_known_actions_at_commits_are_used() -> None:
    own = "".join(path.read_text(encoding="utf-8") for path in (GITHUB / "workflows").glob("*.yml"))
    known = dict(re.findall(r"uses: ([\w/-]+)@([0-9a-f]{40})", own))
    for path in EXAMPLES.glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"uses: (\S+)@(\S+) # v\d+\.\d+\.\d+\n", text)
        assert len(used) == text.count("uses: ") and "secrets." not in text
        assert "permissions:\n  contents: read\n" in text
        for action, commit in used:
            assert re.fullmatch("[0-9a-f]{40}", commit) and action.startswith("actions/")
            assert known.get(action, commit) == commit, action


def test_pull_requests_neither_change_the_store_nor_push_a_waiting_push_out() -> None:
    whole = load(EXAMPLES / "latency-gate.yml")
    writing = [
        step
        for step in next(iter(whole["jobs"].values()))["steps"]
        if "store add" in str(step) or "save@" in str(step)
    ]
    assert len(writing) == 2 and all("github.event_name == 'push'" in step["if"] for step in writing)
    # GitHub keeps one waiting run of a group: the groups of pull requests are their own.
    assert "github.event_name == 'push' && 'main' || github.ref" in whole["concurrency"]["group"]


_IN_CONFIGS_ALONE = re.compile(r"\b(output_root|cpu_affinity|schedule\.\w+)\b")


def test_rooms_that_serve_every_command_name_no_setting_of_a_config() -> None:
    """`profile`, `llm` and `compare` have options instead, or none; errors and warnings of these rooms are
    theirs, too."""
    for room in ("statistics", "runs"):
        for file in sorted((ROOT / "model_profiling" / room).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            texts = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in comments]
            said = [node.value for node in texts if isinstance(node.value, str) and " " in node.value.strip()]
            assert not list(filter(_IN_CONFIGS_ALONE.search, said)), file


# With what a shell would obey: where quoting is forgotten, the text is another.
ODD = "/data/it's $HOME/`x`"
RENDERED = {
    "make_home": scripts.make_home(ODD),
    "state_of": scripts.state_of([ODD, "/b"]),
    "receive": scripts.receive(f"{ODD}/file", f"{ODD}/file.part", 12, "0" * 64, executable=True),
    "list_files": scripts.list_files(ODD, "out'put"),
    "remove_job": scripts.remove_job(ODD),
    "watched": scripts.watched([f"{ODD}/runner", "--model", ODD], ODD, 12.5),
    "machine_facts": scripts.machine_facts(FILES, {**remote.COMMANDS, **android.COMMANDS}),
    "remove_home": scripts.remove_home(ODD),
}
INTENDED = {
    "SC2016": (
        r"'",
        "a word is quoted so that nothing in it is obeyed; one for a shell of its own is looked at alone",
    ),
    "SC2043": (r"\.?/\S+; do", "one path, which may be a pattern on another machine"),
    "SC2046": (r"\$\((wc -c|sha256sum) <", "a size and a hash are taken apart into words"),
}
"""What is meant as it stands in texts for other machines: where, and why."""
WRITTEN = {"zig": compilers._ZIG_SCRIPT}


class Overheard:
    """A link that keeps what it is to run, and loses it."""

    title, shown = "overheard", ("true",)

    def __init__(self) -> None:
        self.heard = ""

    def connect(self) -> None: ...
    def close(self) -> None: ...
    def complaint(self, said: str) -> SetupError | None:
        del said
        return None

    def command(self, script: str) -> Sequence[str]:
        self.heard = script
        return ("true",)


def as_sent(script: str) -> str:
    """With what is put around each text that is sent to another machine."""
    link = Overheard()
    with pytest.raises(LinkLost):
        Shell(link).script(script)
    return link.heard


def texts() -> dict[str, str]:
    """Every piece of shell text by a name for a file; its first line says for which shell it is."""
    found = {}
    for name, text in RENDERED.items():
        found[f"{name}.sh"] = f"#!/bin/sh\n{text}\n"
        # What is given to a shell of its own is a word to this one: it is looked at by itself.
        for number, inner in enumerate(re.findall(r"sh -c '([^']+)'", text)):
            found[f"{name}-{number}.sh"] = f"#!/bin/sh\n{inner}\n"
    found["as_sent.sh"] = f"#!/bin/sh\n{as_sent('true')}\n"
    found |= {f"{name}-program.sh": text for name, text in WRITTEN.items()}
    folders = GITHUB / "workflows", EXAMPLES
    for path in (found for folder in folders for found in sorted(folder.glob("*.yml"))):
        for job, told in YAML(typ="safe").load(path)["jobs"].items():
            steps = [step["run"] for step in told["steps"] if "run" in step]
            for number, text in enumerate(steps):
                # GitHub fills in ${{ ... }} before a shell sees it.
                filled = re.sub(r"\$\{\{.*?\}\}", "filled_in", text)
                found[f"{path.stem}-{job}-{number}.sh"] = f"#!/bin/bash -e\n{filled}\n"
    return found


def test_every_text_for_another_machine_is_looked_at() -> None:
    public = {
        name
        for name, each in inspect.getmembers(scripts, inspect.isfunction)
        if each.__module__ == scripts.__name__ and not name.startswith("_")
    }
    assert public == set(RENDERED)
    assert len([name for name in texts() if name.startswith("watched-")]) == 3


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        missing("shellcheck")
        return
    for name, text in texts().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first = {name: (ROOT / name).read_bytes()[:30].partition(b"\n")[0] for name in tracked()}
    own = [
        name for name, line in first.items() if name.endswith(".sh") or re.match(rb"#!.*\b(ba)?sh\b", line)
    ]
    assert {".ci/run", "model_profiling/scripts/setup_repo.sh"} <= set(own)
    words = [shellcheck, "--external-sources", "--format", "json1", *own, *sorted(tmp_path.glob("*.sh"))]
    done = process.run(words, timeout=300, cwd=ROOT)
    assert done.returncode in (0, 1), done.tail()
    found = [said for said in json.loads(done.stdout)["comments"] if not intended(said)]
    assert found == [], "\n".join(
        f"{one['file']}:{one['line']}: SC{one['code']} {one['message']}" for one in found
    )


def intended(said: dict[str, Any]) -> bool:
    path = Path(said["file"])
    where, _ = INTENDED.get(f"SC{said['code']}", (None, ""))
    if where is None or path.stem.partition("-")[0] not in RENDERED:
        return False
    line = path.read_text(encoding="utf-8").splitlines()[said["line"] - 1]
    return re.match(where, line[said["column"] - 1 :]) is not None


def test_shellcheck_would_find_something(tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        missing("shellcheck")
        return
    careless = tmp_path / "careless.sh"
    careless.write_text("#!/bin/sh\n" + scripts.make_home(ODD).replace('mkdir "$h"', "mkdir $h") + "\n")
    assert "SC2086" in process.run([shellcheck, careless], timeout=60).stdout


@pytest.mark.parametrize("name", ["build_runners", "check_prereqs", "setup_repo"])
def test_a_script_called_with_sh_is_run_by_bash(name: str) -> None:
    """dash said `Illegal option -o pipefail`, and no more."""
    shell = shutil.which("dash") or shutil.which("sh")
    script = ROOT / "model_profiling" / "scripts" / f"{name}.sh"
    done = process.run([str(shell), script, "--help"], timeout=60)
    assert done.ok and "sage" in done.stdout, done.tail()


# What macOS's bash 3.2 and its BSD commands do not know.
_NOT_ON_A_MAC = re.compile(
    r"\b(mapfile|readarray|nproc|realpath|taskset|coproc)\b|declare -[Agn]|local -n|\$\{\w+(,,|\^\^|@)"
    r"|\|&|&>>|readlink -f|sed -i|sed -r|grep -P|date -d|stat -c|sort -V|cp --|mktemp --|xargs -r|head -n -"
)


@pytest.mark.parametrize(
    "script", sorted((ROOT / "model_profiling" / "scripts").glob("*.sh")), ids=lambda path: path.name
)
def test_scripts_use_what_macos_has(script: Path) -> None:
    lines = [line for line in script.read_text().splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in lines if _NOT_ON_A_MAC.search(line)]
    # An empty array is unset to bash 3.2, so under `set -u` it is only used where it has entries.
    bare = re.compile(r'(?<!\+)"\$\{(\w+)\[@\]\}"')
    never_empty = {"wanted", "presets"}
    assert not [line for line in lines if {*bare.findall(line)} - never_empty]
    # GNU's timeout is there only where apt is.
    text = "\n".join(lines)
    assert "timeout " not in text or text.index("apt-get >/dev/null") < text.index("timeout ")


KIT = ROOT / "model_profiling"
SCRIPTS = sorted([*KIT.glob("scripts/*.py"), *KIT.glob("tools/*.py"), KIT / "export" / "export_model.py"])
CASES = sorted((ROOT / "test-cases").glob("*.py"))


def test_scripts_can_be_started_by_name_and_read_by_an_old_python() -> None:
    for path in [KIT / "__init__.py", KIT / "__main__.py", *SCRIPTS, *CASES]:
        ast.parse(path.read_text(encoding="utf-8"), path.name, feature_version=(3, 8))
    for path in [
        *SCRIPTS,
        *(path for path in KIT.glob("scripts/*.sh") if path.stem != "find_python"),  # the others source it
        *(case for case in CASES if case.name.startswith("test_")),
    ]:
        begins = path.read_text(encoding="utf-8").startswith("#!/usr/bin/env ")
        assert begins and os.access(path, os.X_OK), path


def test_a_sparse_checkout_has_what_setup_needs(tmp_path: Path) -> None:
    for words in (
        ["clone", "--quiet", "--no-checkout", "--sparse", str(ROOT), "kit"],
        ["-C", "kit", "sparse-checkout", "set", "model_profiling", "requirements"],
        ["-C", "kit", "checkout", "--quiet"],
    ):
        done = process.run(["git", *words], timeout=120, cwd=tmp_path)
        assert done.ok, done.tail()
    kit = tmp_path / "kit"
    assert not (kit / "tests").exists()
    script = kit / "model_profiling" / "scripts" / "check_prereqs.sh"
    done = process.run(["bash", script], timeout=120, cwd=tmp_path)
    assert done.ok, done.tail()
    text = (KIT / "scripts/setup_repo.sh").read_text()
    needed = set(re.findall(r"(?:requirements|model_profiling)/[\w/.-]+", text))
    assert len(needed) > 3 and all((kit / name).exists() for name in needed if "." in name), needed


def test_what_people_type_stays_few_options() -> None:
    group, shown = program(), {}
    for name in ("profile", "compare"):
        params = group.get_command(click.Context(group), name).params
        options = [each for each in params if isinstance(each, click.Option) and not each.hidden]
        shown[name] = {each.opts[0] for each in options} - {"--debug", "--help"}
        assert len(shown[name]) <= 20, (name, sorted(shown[name]))
    assert len(COMMANDS) == 22
    typed = (
        "--target --threads --dtype --keep --calibrate --method --length --input --quick --budget --sample"
        " --optimize --ladder --evidence --outdir --no-wait --quiet --json --force"
    )
    assert set(typed.split()) <= shown["profile"]
