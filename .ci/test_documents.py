"""What the documents name exists, is short, and says what the code says. e2e/test_walks.py runs them."""

from __future__ import annotations

import functools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from documents import blocks_of, missing_line, pages
from working_tree import ROOT, copy_to, tracked

from model_profiling.cli.main import COMMANDS, program
from model_profiling.core import process
from model_profiling.runner.cache import cache_root, state_root

SKILLS = "agent_skill_ml_profiling"
_FOLDERS = f"model_profiling|bench|docs|tests|test-cases|agentic-kits|{SKILLS}"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_FOLDERS})/[\w/.-]+\.(?:py|sh|json|md|cpp|h|yml)\b")


def test_every_block_of_a_walk_that_is_not_run_says_why() -> None:
    blocks = [block for page in pages() for block in blocks_of(page)]
    reasons = {block.where: block.mark for block in blocks if block.mark}
    known = re.compile(r"not run: \w.*|may answer no")
    assert {where: mark for where, mark in reasons.items() if not known.fullmatch(mark)} == {}
    shells = {block.where for block in blocks if block.language in ("sh", "shell", "console")}
    assert not shells, "commands stand in ```bash blocks"


@pytest.mark.quick
@pytest.mark.parametrize("page", pages())
def test_every_command_option_and_file_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for command in _commands(page, text):
        wrong = _wrong_in(command)
        assert not wrong, f"{page}: {' '.join(command)}: {wrong}"
    for path in _PATH.findall(text):
        if not re.search(r"my_|/out_|your_", path):
            assert (ROOT / path).exists(), f"{page} names {path}"


def test_packages_are_never_installed_into_the_system_s_python() -> None:
    """Debian's own Python refuses ("externally managed"): lines that are copied make an environment first."""
    bare = re.compile(r"^(?:.*&& *)?(?:pip3?|python3? -m pip) install", re.MULTILINE)
    into_system = [
        block.where
        for page in pages()
        for block in blocks_of(page)
        if (found := bare.search(block.text)) and "activate" not in block.text[: found.start()]
    ]
    assert not into_system


@pytest.mark.quick
@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_resolves(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    outside_blocks = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", outside_blocks):
        place, _, anchor = link.partition("#")
        target = (ROOT / page).parent / place if place else ROOT / page
        if re.match(r"[a-z]+:", link):
            continue
        assert target.exists(), f"{page} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{page} links to {link}"


@pytest.mark.quick
def test_readme_begins_with_the_commands_and_no_file_names_another_kit_s_address() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) <= 900
    screen = "".join(readme.splitlines(keepends=True)[:24])
    assert all(f"\n{words} " in screen for words in ("git clone ADDRESS", "make quickstart", "make test"))
    address = "github.com/ArmDeveloperEcosystem/" + "sme-executorch-profiling"
    for name in (name for name in tracked() if not name.startswith("tests/data/")):
        assert address.encode() not in (ROOT / name).read_bytes(), name


@pytest.mark.quick
def test_a_page_names_the_versions_that_are_installed_and_every_folder_of_the_kit(monkeypatch) -> None:
    page = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    pins = re.search(r'"executorch==(.+?)", "torch==(.+?)"', (ROOT / "pyproject.toml").read_text())
    assert pins and f"\nExecuTorch {pins[1]}, with torch {pins[2]}: " in page
    for name in ("SME2PROF_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    kept = " ".join(f"~/{folder.relative_to(Path.home())}" for folder in (cache_root(), state_root()))
    assert f"\nrm -r {kept} " in page


_GUARD = re.compile(
    "O_NOFOLLOW|setrlimit|S_IWOTH|weights_only=|allow_pickle=|trust_remote_code|--require-hashes"
    "|require_encryption|enable_external_access|tarfile|zipfile"
)
_NO_GUARD = {"targets/emulated.py"}
"""What unpacks a wheel that pip has checked."""


@pytest.mark.quick
def test_every_promise_names_what_decides_it_and_every_guard_has_a_promise() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    decided = set()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 16
    for who, _, modules, tests in rows:
        for column, folder, start in ((modules, "model_profiling", ""), (tests, "tests", "test_")):
            named = re.findall(r"`([\w/.]+\.py)`", column)
            assert named, f"{who} names no {folder}"
            for name in named:
                path = ROOT / name if name.startswith(".ci/") else ROOT / folder / name
                assert path.is_file(), f"{who}: there is no {name}"
                assert Path(name).name.startswith(start)
        decided |= set(re.findall(r"`([\w/]+\.py)`", modules))
    package = ROOT / "model_profiling"
    guarding = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if _GUARD.search(path.read_text(encoding="utf-8"))
    }
    assert guarding - decided == _NO_GUARD, "a guard belongs to a row of docs/explanation/security.md"


@pytest.mark.quick
def test_what_pages_say_of_the_code_and_of_the_steps_is_what_these_say() -> None:
    """Commands, settings, facts and tables; the learning path's commands, all skills, all kits."""
    code = "import json, generate; print(json.dumps({str(k): v for k, v in generate.files().items()}))"
    done = process.run([sys.executable, "-c", code], timeout=60, cwd=ROOT, env={"PYTHONPATH": "docs"})
    assert done.ok, done.tail()
    files = json.loads(done.stdout)
    differ = [name for name, text in files.items() if Path(name).read_text(encoding="utf-8") != text]
    assert not differ, "`python docs/generate.py` writes them again"
    assert len(files) >= 20


ANSWERS = {
    "reference/machines.md": "| x86_64 Linux | says nothing about Arm | proven under emulation |",
    "how-to/install.md": "## Uninstall",
    "how-to/adding_a_model.md": "sme2prof onboard my_model",
    "reference/report.md": "Where does the time go?",
    "explanation/measuring.md": "| `faster`, `slower` |",
    "explanation/kernels.md": "| `executed` |",
    "explanation/headroom.md": "| depthwise |",
    "how-to/optimize.md": "sme2prof optimize my_model.py:make",
    "how-to/dtypes.md": "sme2prof profile toy_cnn --dtype all",
    "how-to/android.md": "sme2prof profile toy_cnn --dtype fp16 --target android",
    "how-to/troubleshooting.md": "## Results",
}
"""What answers a newcomer's question, by the page that the index names beside it."""


@pytest.mark.quick
def test_ten_questions_are_answered_two_clicks_from_the_readme() -> None:
    readme, index = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/README.md"))
    assert "(docs/README.md)" in readme, "the first click"
    questions = index.partition("## Ten questions of newcomers")[2].partition("\n## ")[0]
    asked = re.findall(r"^- .+?\? .*$", questions, re.MULTILINE)
    assert len(asked) == 10 and all("](" in line for line in asked)
    for link in re.findall(r"\]\(([^)]+)\)", questions):
        assert ANSWERS[link] in (ROOT / "docs" / link).read_text(encoding="utf-8"), link


@pytest.mark.quick
def test_the_documents_stay_short() -> None:
    words = {
        page: len((ROOT / page).read_text(encoding="utf-8").split())
        for page in pages()
        if page == "README.md" or page.startswith("docs/")
    }
    assert sum(words.values()) <= 28_000, sorted(words.items(), key=lambda each: -each[1])[:12]
    assert words["docs/architecture.md"] <= 700


def test_lists_and_tables_follow_a_blank_line() -> None:
    """Else the site shows them as a part of the sentence above."""
    run_on = re.compile(r"^[^\s#|<*-][^\n]*\n(?=(?:-|\d+\.) |\|)", re.MULTILINE)
    for page in (page for page in pages() if page.startswith("docs/")):
        text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S | re.M)
        found = [line for line in run_on.findall(text) if not re.match(r"\d+\. ", line)]
        assert not found, f"{page}: {found}"


def test_the_index_names_every_page_and_the_site_is_built(tmp_path: Path) -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    unnamed = [
        page
        for page in pages()
        if re.match(r"docs/(?!README)", page) and not re.match(r"docs/learn/\d", page)
        if f"({page.removeprefix('docs/')})" not in index
    ]
    assert not unnamed, "docs/README.md says in a line what each page answers"
    copy_to(tmp_path / "clone")
    (tmp_path / "clone" / ".venv").symlink_to(sys.prefix)
    done = process.run(["make", "docs"], timeout=300, cwd=tmp_path / "clone")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {page.parent.name for page in (tmp_path / "clone" / "site").rglob("index.html")}
    assert {Path(page).stem for page in pages() if re.match("docs/(?!README)", page)} <= found
    assert "lockstep" in (tmp_path / "clone" / "site" / "search.json").read_text(encoding="utf-8")


def test_failed_checks_are_named_as_they_are_printed() -> None:
    """An assistant looks for the line by its first word: `fail` is a status in JSON, lines say FAIL."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "model_profiling").rglob("*.py"))
    named = 0
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert not re.search(r"`fail  |\^fail|(?:begins with|each) `fail`", text), page
        for name in re.findall(r"`FAIL  ([^`]+)`", text):
            named += 1
            assert f'"{name}"' in sources, f"{page} names a check {name!r}"
    assert named >= 4


_OF_OTHERS = {"THESE PACKAGES DO NOT MATCH THE HASHES", "sme2prof: command not found"}
"""Lines of pip and of the shell."""


@pytest.mark.quick
def test_lines_of_troubleshooting_are_lines_of_the_kit() -> None:
    """By three words in a row, because sentences in the code have gaps and breaks."""
    paths = [path for end in ("py", "sh") for path in (ROOT / "model_profiling").rglob(f"*.{end}")]
    sources = re.sub(r'"\s*f?"', "", "".join(path.read_text(encoding="utf-8") for path in paths))
    page = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"(?:\*\*|^\| )`([^`]+)`", page, re.MULTILINE)) - _OF_OTHERS
    assert len(quoted) >= 14
    for line in quoted:
        words = line.split()
        runs = [" ".join(words[first : first + 3]).strip(" ;,:.") for first in range(max(1, len(words) - 2))]
        assert any(run in sources for run in runs if "..." not in run), line


def test_scripts_print_help_with_any_python_of_the_environment() -> None:
    for folder in ("scripts", "tools"):
        for script in sorted((ROOT / "model_profiling" / folder).glob("*.py")):
            assert "usage" in _help_of(str(script.relative_to(ROOT))).lower()


def test_what_is_not_so_is_found() -> None:
    assert _wrong_in(shlex.split("sme2prof profle toy_cnn")) == "there is no command profle"
    assert _wrong_in(shlex.split("sme2prof profile toy_cnn --dtpye fp16")) == "--dtpye"
    assert _wrong_in(shlex.split("sme2prof config check --model x")) == "--model"
    assert _wrong_in(["python", "model_profiling/scripts/generate_report.py", "--rundir", "x"]) == "--rundir"
    assert not _wrong_in(["python", "model_profiling/scripts/generate_report.py", "--run-dir", "x"])
    real = "wrote /tmp/a/report.md\nGEMM   12.5 ms\nCONV    7 ms\n"
    assert not missing_line("wrote /home/me/report.md\n...\nCONV 99.1 ms", real)
    assert missing_line("CONV 7 ms\nGEMM 12.5 ms", real) == "GEMM 12.5 ms", "lines come in that order"
    assert missing_line("wrote report.md", real) == "wrote report.md"


@functools.cache
def _anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
    return frozenset(words)


def _commands(page: str, text: str) -> Iterator[list[str]]:
    """The commands of the page's blocks, and those that are named within a sentence."""
    shown = [block.text for block in blocks_of(page) if block.language == "bash"]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    named = [span for span in re.findall(r"`([^`\n]+)`", prose) if re.match(r"sme2prof |python ", span)]
    for part in (*shown, *named):
        for line in part.replace("\\\n", " ").splitlines():
            for piece in re.split(r"&&|\|\||;|\s\|\s|\$\(|[()]", line.partition(" #")[0]):
                try:
                    words = shlex.split(piece)
                except ValueError:  # half of something quoted: no command of ours
                    continue
                if words and (words[0] == "sme2prof" or words[:1] == ["python"]):
                    yield words


def _wrong_in(words: list[str]) -> str:
    """What does not exist of a command's sub-commands and options."""
    if words[0] == "python":
        named = re.match(r"(?:model_profiling|bench|test-cases)/.*\.py$", " ".join(words[1:2]))
        if not named or not (ROOT / words[1]).is_file() or not any(word[0] in "-[" for word in words[2:]):
            return ""
        known = _options_of_script(words[1])
        rest = words[2:]
    else:
        names = [word for word in words[1:] if re.fullmatch(r"[a-z]+", word) and word != "help"]
        if not names:
            return ""
        if names[0] not in COMMANDS:
            return f"there is no command {names[0]}"
        known = _options_of_command(names[0], names[1] if len(names) > 1 else "")
        rest = words[1:]
    asked = (re.match(r"\[?(--[a-z][\w-]*)", word) for word in rest)
    return ", ".join(found[1] for found in asked if found and found[1] not in known)


@functools.cache
def _options_of_command(name: str, sub: str) -> frozenset[str]:
    command = program().get_command(click.Context(program()), name)
    assert command is not None
    commands = [command]
    if isinstance(command, click.Group):
        commands += [command.commands[sub]] if sub in command.commands else list(command.commands.values())
    params = [param for each in commands for param in each.params]
    options = {option for param in params for option in (*param.opts, *param.secondary_opts)}
    return frozenset(options | {"--help", "--debug", "--version"})


@functools.cache
def _options_of_script(path: str) -> frozenset[str]:
    text = _help_of(path)
    options = frozenset(re.findall(r"--[a-z][\w-]*", text))
    as_command = re.search(r"those of\s+`sme2prof (\w+)`", text)
    return options | (_options_of_command(as_command[1], "") if as_command else frozenset())


@functools.cache
def _help_of(path: str) -> str:
    done = process.run([sys.executable, path, "--help"], timeout=60, cwd=ROOT)
    assert done.returncode == 0, f"{path}: {done.stderr}"
    return done.stdout
