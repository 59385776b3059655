"""An answer that is lost is said where that can be, and never ends with 0; real processes, because pytest has
streams of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from said import says

from model_profiling.core import stdio

ROOT = Path(__file__).parents[2]
CLOSED, FULL = "closed", "no space left on device"
KIT = "-m model_profiling"
TOOL = "model_profiling/tools/xnntrace_to_kernels.py"
SCRIPT = "model_profiling/scripts/validate_results.py"


def shell(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "words, code, told",
    [
        (f"{KIT} --version >&-", 2, CLOSED),
        (f"{KIT} --help >/dev/full", 2, FULL),
        (f"{KIT} models --json >/dev/full", 2, FULL),
        (f"{KIT} models >&- 2>&- <&-", 2, ""),
        (f"{KIT} nope >&- 2>/dev/full", 2, ""),
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


def test_a_file_never_gets_the_number_of_a_closed_stream() -> None:
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


def test_a_failure_of_something_else_is_not_taken_for_a_lost_answer() -> None:
    def work() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        stdio.checked_output(work)()
