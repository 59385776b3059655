"""A signal ends every entry point as Ctrl-C does, and not before a phone's settings are put back."""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from said import says

from model_profiling.compat import scripts, validate_setup
from model_profiling.compat.scripts import run_tool
from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.process import Completed
from model_profiling.runner import __main__ as build_ahead
from model_profiling.targets.power_mode import NAMES, PowerSettings

SCRIPTS = Path(__file__).resolve().parents[2] / "model_profiling" / "scripts"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:  # should nothing be set, the test is to fail, not to be killed
        signal.signal(number, lambda *_: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_end_is_that_of_ctrl_c(number, monkeypatch, capsys):
    def work(*_words: object, **_options: object) -> int:
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(build_ahead, "build_runner", work)
    monkeypatch.setattr("model_profiling.workflow.profile.find_or_export", work)
    monkeypatch.setattr(validate_setup, "examine", work)
    mains: dict[str, Callable[[], int]] = {
        "tools": lambda: run_tool(work, argparse.ArgumentParser()),
        "runner": build_ahead.main,
        "quick test": lambda: scripts.run_quick_test(""),
        "validate_setup": lambda: validate_setup.validate_setup(""),
    }
    monkeypatch.setattr("sys.argv", ["x"])
    assert {name: main() for name, main in mains.items()} == dict.fromkeys(mains, 130)
    said = capsys.readouterr().err
    assert said.count("interrupted") == 4


def test_a_crash_is_no_success_where_ends_of_children_are_ignored() -> None:
    """A process inherits that, as from a daemon that starts it; the system then forgets how children end."""
    code = (
        "import signal\nfrom model_profiling.core import process, stdio\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nstdio.end_like_ctrl_c()\n"
        "print(process.run(['sh', '-c', 'exit 3'], timeout=9).returncode)"
    )
    env = {"PYTHONPATH": str(SCRIPTS.parents[1])}
    assert process.run([sys.executable, "-c", code], timeout=20, env=env).stdout == "3\n"


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_an_end_that_comes_while_an_object_is_freed_is_not_lost(number: str) -> None:
    code = f"""
import signal, time
from model_profiling.core.stdio import end_like_ctrl_c
class Freed:
    def __del__(self): signal.raise_signal(signal.{number})
end_like_ctrl_c()
try:
    Freed()
    time.sleep(15)
except KeyboardInterrupt:
    print("ended")
"""
    done = process.run([sys.executable, "-c", code], timeout=20, env={"PYTHONPATH": str(SCRIPTS.parents[1])})
    assert (done.stdout, done.stderr) == ("ended\n", "")


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Phone:
    """Keeps settings; `meanwhile` happens before each change."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {"low_power": "1"}
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, argv: list[str]) -> Completed:
        if argv[0] == "settings":
            self.meanwhile()
            _, verb, _, name, *value = argv
            self.settings.pop(name, None)
            self.settings |= {name: value[0]} if verb == "put" else {}
        said = "".join(f"{name}={self.settings.get(name, 'null')}\n" for name in NAMES)
        return Completed(tuple(argv), 0, said, "", 0.0, False)

    def repeat(self, step: Callable[[], object]) -> object:
        return step()


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Phone()


def hold(phone: Phone, meanwhile: Callable[[], None], *, interrupted: bool) -> None:
    with PowerSettings(phone, "the phone", "own-id").held("boost"):
        assert phone.settings["low_power"] == "0"
        phone.meanwhile = meanwhile
        if interrupted:
            raise KeyboardInterrupt


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_waits_until_everything_is_back(number: int, interrupted: bool, phone: Phone) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, ended)
    try:
        with pytest.raises(KeyboardInterrupt) as stopped:
            hold(phone, lambda: signal.raise_signal(number), interrupted=interrupted)
        assert signal.getsignal(number) is ended and not stopped.value.args
    finally:
        signal.signal(number, before)
    assert phone.settings == {"low_power": "1"}


def test_settings_that_stay_do_not_keep_a_run_from_leaving_them(phone: Phone) -> None:
    def gone() -> None:
        raise SetupError("gone")

    settings = PowerSettings(phone, "the phone", "own-id")
    with pytest.raises(KeyboardInterrupt), settings.held("boost"):
        phone.meanwhile = gone
        raise KeyboardInterrupt
    later = PowerSettings(phone, "the phone", "own-id")
    with later.held("leave"):
        says(later.notes[0], "not put back yet", "gone")
    with pytest.raises(SetupError, match="gone"), later.held("app"):
        raise AssertionError("nothing may be measured so")
