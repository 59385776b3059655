"""A signal that ends a command ends it as Ctrl-C does, in every documented entry point."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from said import says

from model_profiling.cli.script import run_tool
from model_profiling.core import process
from model_profiling.core.signals import defer_signals
from model_profiling.runner import __main__ as build_ahead
from model_profiling.runner.source_build import __main__ as source_build

SCRIPTS = Path(__file__).resolve().parents[2] / "model_profiling" / "scripts"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:  # should nothing be set, the test is to fail, not to be killed
        signal.signal(number, lambda *_: None)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_end_is_that_of_ctrl_c(number, monkeypatch, capsys, tmp_path):
    def work(*_words: object, **_options: object) -> int:
        signal.raise_signal(number)
        return 0

    quick, setup = _script("run_quick_test"), _script("validate_setup")
    monkeypatch.setattr(build_ahead, "build_runner", work)
    monkeypatch.setattr(quick, "quick_test", work)
    monkeypatch.setattr(setup, "examine", work)
    monkeypatch.setattr(source_build, "fetch_source", work)
    mains: dict[str, Callable[[], int]] = {
        "tools": lambda: run_tool(work, argparse.Namespace()),
        "runner": build_ahead.main,
        "source builds": lambda: source_build.main(["fetch", "--dest", str(tmp_path / "executorch")]),
        "quick test": lambda: quick.main([]),
        "validate_setup": setup.main,
    }
    monkeypatch.setattr("sys.argv", ["x"])
    assert {name: main() for name, main in mains.items()} == dict.fromkeys(mains, 130)
    said = capsys.readouterr().err
    assert said.count("interrupted") == 4
    says(said, "stopped", "same command")


def test_a_crash_is_no_success_where_ends_of_children_are_ignored() -> None:
    """A process inherits that, as from a daemon that starts it; the system then forgets how children end."""
    code = (
        "import signal\nfrom model_profiling.core import process, signals\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nsignals.end_like_ctrl_c()\n"
        "print(process.run(['sh', '-c', 'exit 3'], timeout=9).returncode)"
    )
    env = {"PYTHONPATH": str(SCRIPTS.parents[1])}
    assert process.run([sys.executable, "-c", code], timeout=20, env=env).stdout == "3\n"


def test_a_signal_at_the_end_of_a_delay_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers are put back one by one; a Ctrl-C after the first must not leave the others noting."""
    interrupt, change, heard = signal.getsignal(signal.SIGINT), signal.signal, list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))

    def change_and_be_hit(number: signal.Signals, handler: Callable[..., object]) -> object:
        old = change(number, handler)
        if handler is interrupt:
            os.kill(os.getpid(), signal.SIGINT)
        return old

    monkeypatch.setattr(signal, "signal", change_and_be_hit)
    with pytest.raises(KeyboardInterrupt), defer_signals():
        pass
    monkeypatch.undo()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
