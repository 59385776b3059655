"""The frame every command stands in: help, exit codes, one-line errors, and what may be imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from model_profiling import process
from model_profiling.cli.main import COMMANDS, LazyGroup, main, program
from model_profiling.errors import ProfilingError

Cli = Callable[..., process.Completed]
HEAVY = {"torch", "numpy", "pandas", "scipy", "pydantic", "rich", "executorch"}


def _loaded(arguments: list[str]) -> set[str]:
    code = (
        "import sys\nfrom model_profiling.cli.main import main\n"
        f"code = main({arguments!r})\n"
        "print('LOADED', *{name.partition('.')[0] for name in sys.modules})\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize(("handler", "kept"), [(signal.SIG_IGN, True), (signal.SIG_DFL, False)])
def test_a_closed_terminal_ends_a_run_unless_it_was_started_with_nohup(
    sme2prof: Cli, handler: signal.Handlers, kept: bool
) -> None:
    signal.signal(signal.SIGHUP, handler)
    sme2prof("--version")
    assert (signal.getsignal(signal.SIGHUP) is handler) == kept


def test_help_loads_nothing_heavy() -> None:
    loaded = _loaded(["--help"])
    assert "click" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_and_loads_no_torch(name: str, cli: Cli) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0, done.stderr
    assert "Example:\n" in done.stdout
    assert f"sme2prof {name}" in done.stdout
    assert "--debug" in done.stdout or "Commands:" in done.stdout
    assert "torch" not in _loaded([name, "--help"])


def test_the_table_of_commands_is_complete() -> None:
    group = program()
    assert isinstance(group, LazyGroup)
    for name in COMMANDS:
        found = group.get_command(click.Context(group), name)
        assert found is not None
        assert found.name == name


def test_bad_usage_is_one_line_and_exit_2(cli: Cli) -> None:
    for words in (["exprot"], ["export"], ["export", "toy_cnn", "--dtype", "fp8"], ["models", "--nope"]):
        done = cli(*words)
        assert done.returncode == 2, words
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert "did you mean 'export'?" in cli("exprot").stderr


def test_an_expected_failure_is_one_line_and_debug_shows_where(cli: Cli) -> None:
    quiet = cli("export", "no_such_model_at_all")
    assert (quiet.returncode, quiet.stderr.count("\n")) == (2, 1)
    assert "Traceback" not in quiet.stderr
    loud = cli("export", "no_such_model_at_all", "--debug")
    assert loud.returncode == 2
    assert "Traceback" in loud.stderr
    assert loud.stderr.splitlines()[-1] == quiet.stderr.strip()


@pytest.mark.parametrize(
    "raised, code, line",
    [
        (ProfilingError("a is wrong\nacross lines", "do b"), 2, "error: a is wrong across lines; do b"),
        (KeyboardInterrupt(), 130, "error: interrupted; nothing was left half written"),
        (KeyboardInterrupt("a is to be put back"), 130, "error: interrupted; a is to be put back"),
        (
            ZeroDivisionError("oops"),
            2,
            "error: unexpected ZeroDivisionError: oops; run it with --debug and report it",
        ),
    ],
)
def test_main_turns_every_failure_into_one_line(
    raised: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(LazyGroup, "invoke", fail)
    assert main(["models"]) == code
    assert capsys.readouterr().err == line + "\n"


def test_a_closed_pipe_is_no_failure() -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m model_profiling models | head -1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="script(1) takes other options elsewhere")
def test_a_terminal_shows_the_stage_while_torchs_output_is_kept_back() -> None:
    """On a real terminal: what export captures from stderr must not swallow the live line."""
    code = (
        "import time\n"
        "from model_profiling.cli.progress import shown_progress\n"
        "from model_profiling.export.quietly import quietly\n"
        "with shown_progress() as progress, quietly() as kept:\n"
        "    progress.stage('lowering to xnnpack'); print('chatter'); time.sleep(0.5)\n"
        "assert 'chatter' in kept.text and 'lowering' not in kept.text\n"
    )
    done = process.run(["script", "-qec", f'{sys.executable} -c "{code}"', "/dev/null"], timeout=60)
    assert done.returncode == 0, done.stdout
    assert "lowering to xnnpack" in done.stdout
    assert "chatter" not in done.stdout
