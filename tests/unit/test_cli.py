"""The frame every command stands in: help, exit codes, one-line errors, and what may be imported."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from said import says

from model_profiling.cli.main import COMMANDS, LazyGroup, main, program
from model_profiling.core import process
from model_profiling.core.errors import ProfilingError

Cli = Callable[..., process.Completed]
ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "numpy", "pandas", "scipy", "pydantic", "rich", "executorch"}


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


def test_help_loads_nothing_heavy(helped: dict[str, Helped]) -> None:
    assert "click" in helped["--help"].loaded
    assert not helped["--help"].loaded & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_loads_no_torch(name, helped):
    done = helped[name]
    assert done.code == 0
    assert "Example:\n" in done.said
    assert f"sme2prof {name}" in done.said
    assert "--debug" in done.said or "Commands:" in done.said
    assert "torch" not in done.loaded


def test_the_table_of_commands_is_complete() -> None:
    group = program()
    assert isinstance(group, LazyGroup)
    for name in COMMANDS:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        assert found.name == name


def test_bad_usage_is_one_line_and_exit_2(sme2prof: Cli) -> None:
    for words in (["exprot"], ["export"], ["export", "toy_cnn", "--dtype", "fp8"], ["models", "--nope"]):
        done = sme2prof(*words)
        assert done.returncode == 2, words
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    alone = process.run([sys.executable, "-m", "model_profiling", "exprot"], timeout=60, cwd=ROOT)
    assert alone.returncode == 2
    says(alone.stderr, "'export'")


def test_an_expected_failure_is_one_line_and_debug_shows_where(sme2prof: Cli) -> None:
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
        "from model_profiling.cli.progress import shown_progress\n"
        "from model_profiling.export.accuracy import quietly\n"
        "with shown_progress() as progress, quietly() as kept:\n"
        "    progress.stage('lowering to xnnpack'); print('chatter'); time.sleep(0.5)\n"
        "assert 'chatter' in kept.text and 'lowering' not in kept.text\n"
    )
    done = process.run(["script", "-qec", f'{sys.executable} -c "{code}"', "/dev/null"], timeout=60)
    assert done.returncode == 0, done.stdout
    assert "lowering to xnnpack" in done.stdout
    assert "chatter" not in done.stdout
