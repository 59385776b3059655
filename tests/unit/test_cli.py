"""The frame every command stands in: help, exit codes, one-line errors, lost answers, imports."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from said import says

from model_profiling.cli.main import COMMANDS, GROUPS, LazyGroup, main
from model_profiling.core import process, stdio
from model_profiling.core.errors import ProfilingError

Cli = Callable[..., process.Completed]
ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "numpy", "pandas", "scipy", "pydantic", "executorch"}


@dataclass(frozen=True)
class Helped:
    """What `--help` of a command printed and returned, and what the process had loaded by then."""

    code: int
    said: str
    loaded: frozenset[str]


_HELP = """\
import contextlib, io, json, sys
from model_profiling.cli.main import main
helped = {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = main(words)
    helped[words[0]] = [code, said.getvalue(), sorted({name.partition(".")[0] for name in sys.modules})]
print(json.dumps(helped))
"""


@pytest.fixture(scope="module")
def helped() -> dict[str, Helped]:
    """Of the program and of each command, asked in one process: what none of them loads, each leaves out."""
    asked = [["--help"], *([name, "--help"] for name in COMMANDS)]
    done = process.run([sys.executable, "-c", _HELP, json.dumps(asked)], timeout=120)
    assert done.ok, done.tail(20)
    return {
        name: Helped(code, said, frozenset(loaded))
        for name, (code, said, loaded) in json.loads(done.stdout).items()
    }


@pytest.mark.parametrize(("handler", "kept"), [(signal.SIG_IGN, True), (signal.SIG_DFL, False)])
def test_a_closed_terminal_ends_a_run_unless_it_was_started_with_nohup(sme2prof, handler, kept):
    signal.signal(signal.SIGHUP, handler)
    sme2prof("--version")
    assert (signal.getsignal(signal.SIGHUP) is handler) == kept


def test_help_loads_nothing_heavy_and_shows_the_groups_with_one_line_for_each_command(helped):
    assert "click" in helped["--help"].loaded
    assert not helped["--help"].loaded & HEAVY
    said = helped["--help"].said
    assert max(map(len, said.splitlines())) <= 80
    listed = re.findall(r"^(\w[\w ]+):\n((?:  [a-z]+ +[A-Z`].*\n)+)", said, re.MULTILINE)
    assert {title: [line.split()[0] for line in lines.splitlines()] for title, lines in listed} == {
        title: list(commands) for title, commands in GROUPS.items()
    }
    for name, summary in (each for group in GROUPS.values() for each in group.items()):
        assert f"  {name:8}  {summary}\n" in said
    says(said, "Example:\n    sme2prof profile toy_cnn", "sme2prof help COMMAND", "sme2prof-*", "earlier kit")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_loads_no_torch(name, helped):
    done = helped[name]
    assert done.code == 0
    assert "Example:\n" in done.said
    assert f"sme2prof {name}" in done.said
    assert "--debug" in done.said or "Commands:" in done.said
    assert "torch" not in done.loaded


def test_help_is_had_by_every_usual_word(sme2prof: Cli) -> None:
    for words, as_in in (
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        ([], ["--help"]),
        (["export", "-h"], ["export", "--help"]),
        (["help", "export"], ["export", "--help"]),
        (["help", "store", "add"], ["store", "add", "--help"]),
        (["store"], ["store", "--help"]),
        (["config"], ["config", "--help"]),
        (["skills"], ["skills", "--help"]),
    ):
        done = sme2prof(*words)
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout.startswith("Usage: ") and done.stdout.strip() == sme2prof(*as_in).stdout.strip()
    assert sme2prof("help", "exprot").returncode == 2


def test_bad_usage_and_expected_failures_are_one_line_and_exit_2(sme2prof: Cli) -> None:
    for words in (["exprot"], ["export"], ["export", "toy_cnn", "--dtype", "fp8"], ["models", "--nope"]):
        done = sme2prof(*words)
        assert done.returncode == 2, words
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    alone = process.run([sys.executable, "-m", "model_profiling", "exprot"], timeout=60, cwd=ROOT)
    assert alone.returncode == 2
    says(alone.stderr, "'export'")
    quiet = sme2prof("export", "no_such_model_at_all")
    assert (quiet.returncode, quiet.stderr.count("\n")) == (2, 1)
    assert "Traceback" not in quiet.stderr
    loud = sme2prof("export", "no_such_model_at_all", "--debug")
    assert loud.returncode == 2
    assert "Traceback" in loud.stderr
    assert loud.stderr.splitlines()[-1] == quiet.stderr.strip()


@pytest.mark.parametrize(
    "raised, code, facts",
    [
        (ProfilingError("a is wrong\nacross lines", "do b"), 2, ("a is wrong across lines; do b",)),
        (KeyboardInterrupt(), 130, ("interrupted",)),
        (KeyboardInterrupt("a is to be put back"), 130, ("interrupted", "a is to be put back")),
        (ZeroDivisionError("oops"), 2, ("unexpected", "ZeroDivisionError: oops", "--debug")),
    ],
)
def test_main_turns_every_failure_into_one_line(raised, code, facts, monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(LazyGroup, "invoke", fail)
    assert main(["models"]) == code
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1
    says(line, *facts)


@pytest.mark.skipif(sys.platform != "linux", reason="script(1) takes other options elsewhere")
def test_a_terminal_shows_the_stage_while_torchs_output_is_kept_back() -> None:
    """On a real terminal: what export captures from stderr must not swallow the live line."""
    code = (
        "import time\n"
        "from model_profiling.core.stdio import shown_progress\n"
        "from model_profiling.export.accuracy import quietly\n"
        "with shown_progress() as progress, quietly() as kept:\n"
        "    progress.stage('lowering to xnnpack'); print('chatter')\n"
        "assert 'chatter' in kept.text and 'lowering' not in kept.text\n"
    )
    done = process.run(["script", "-qec", f'{sys.executable} -c "{code}"', "/dev/null"], timeout=60)
    assert done.returncode == 0, done.stdout
    assert "lowering to xnnpack" in done.stdout
    assert "chatter" not in done.stdout


CLOSED, FULL = "closed", "no space left on device"
KIT = "-m model_profiling"
TOOL = "model_profiling/tools/xnntrace_to_kernels.py"
SCRIPT = "model_profiling/scripts/validate_results.py"


def shell(script: str) -> subprocess.CompletedProcess[str]:
    asked = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "stdin": subprocess.DEVNULL}
    return subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False, **asked)


@pytest.mark.parametrize(
    "words, code, told",
    [
        (f"{KIT} --version >&-", 2, CLOSED),
        (f"{KIT} --help >/dev/full", 2, FULL),
        (f"{KIT} models --json >/dev/full", 2, FULL),
        (f"{KIT} models >&- 2>&- <&-", 2, ""),
        (f"{KIT} models >/dev/null 2>&-", 0, ""),
        (f"{TOOL} --help >/dev/full", 2, FULL),
        (f"{SCRIPT} --help >&-", 2, CLOSED),
    ],
)
def test_an_answer_that_cannot_be_written_is_no_success(words: str, code: int, told: str) -> None:
    if "/dev/full" in words and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    done = shell(f"{sys.executable} {words}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1 if told else 0)
    if told:
        assert done.stderr.startswith("error: ")
        says(done.stderr, "standard output", told)


@pytest.mark.parametrize("words", [f"{KIT} config schema", f"{TOOL} --help"])
def test_a_reader_that_goes_away_is_not_told(words: str) -> None:
    """It ends as `yes | head` does."""
    done = shell(f"{sys.executable} {words} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (141, "")


def test_a_file_never_gets_the_number_of_a_closed_stream_and_other_failures_stay_theirs() -> None:
    """Else a child that inherits it would print into a lock or a dump."""
    code = (
        "import os, sys\n"
        "from model_profiling.core.stdio import checked_output, say_aside\n"
        "def work():\n"
        "    say_aside(str(os.open('pyproject.toml', os.O_RDONLY) > 2))\n"
        "    return 0\n"
        "sys.exit(checked_output(work)())\n"
    )
    done = shell(f'{sys.executable} -c "{code}" <&- >&-')
    assert (done.returncode, done.stderr) == (0, "True\n")

    def work() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        stdio.checked_output(work)()


def test_what_is_no_program_is_refused_before_it_is_hashed_and_leaves_nothing(
    sme2prof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pte").write_text("A text, not a program.")
    with Path("zeros.pte").open("wb") as zeros:
        zeros.truncate(1 << 40)  # nobody lives to see its hash
    config = {"model": "text.pte", "output_root": "out/runs/mac", "experiments": [{"name": "one"}]}
    Path("c.json").write_text(json.dumps(config))
    before = sorted(tmp_path.rglob("*"))
    for words in (("profile", "text.pte"), ("profile", "zeros.pte"), ("run", "c.json"),
                  ("compare", "text.pte", "zeros.pte")):  # fmt: skip
        done = sme2prof(*words)
        assert done.returncode == 2, done.tail()
        says(done.stderr, ".pte is not an ExecuTorch program")
    assert sorted(tmp_path.rglob("*")) == before
