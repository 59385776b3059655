"""How much of the package a command needs: which rooms it loads, and of how many files it runs functions."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from recorded_runs import DATA, SME2

from model_profiling.core import process

_LOADED = """
import json, sys
from model_profiling.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(name for name in sys.modules if name.startswith("model_profiling."))]))
"""
_EXECUTED = """
import inspect, json, sys, threading
from pathlib import Path
import model_profiling
home, executed = str(Path(model_profiling.__file__).parent), set()
def note(frame, event, _):
    code = frame.f_code
    # Only named functions: a module's own comprehensions run when it is loaded.
    named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    if event == "call" and named and code.co_filename.startswith(home):
        executed.add(code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
from model_profiling.cli.main import main
code = main(sys.argv[1:])
sys.setprofile(None)
print(json.dumps([code, sorted(executed)]))
"""
_MOST_EXECUTED = 151


def _asked(program: str, *words: object) -> list[str]:
    done = process.run([sys.executable, "-c", program, *map(str, words)], timeout=240)
    assert done.ok, done.tail(20)
    code, found = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    return list(found)


def test_comparing_two_runs_loads_no_room_that_measures_or_stores() -> None:
    loaded = _asked(_LOADED, "compare", DATA / "arm_without_sme2", DATA / "arm_without_sme2", "--quiet")
    rooms = {name.split(".")[1] for name in loaded}
    assert "workflow" in rooms
    assert not rooms & {"store", "export", "targets", "models", "sweep", "mcp_server"}
    assert not {f"model_profiling.{name}" for name in ("config.settings", "runs.measuring")} & set(loaded)


def test_profiling_a_model_runs_a_bounded_part_of_the_package(tmp_path: Path) -> None:
    words = ("--target", "host", "--budget", 1, "--outdir", tmp_path / "o", "--quiet")
    executed = _asked(_EXECUTED, "profile", "toy_cnn", *words)
    assert 50 < len(executed) <= _MOST_EXECUTED


@pytest.mark.parametrize(("command", "most"), [("analyze", 60), ("report", 75)])
def test_reading_a_run_again_runs_a_bounded_part_of_the_package(
    command: str, most: int, tmp_path: Path
) -> None:
    executed = _asked(_EXECUTED, command, shutil.copytree(SME2, tmp_path / "run"))
    assert 40 < len(executed) <= most
