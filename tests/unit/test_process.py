"""Subprocesses end at their limit with everything they started, and what they said is kept."""

from __future__ import annotations

import sys
import time

import pytest

from model_profiling import process
from model_profiling.errors import SetupError


def test_output_and_exit_code_are_values() -> None:
    done = process.run([sys.executable, "-c", "import sys; print('out'); sys.exit('err')"], timeout=20)
    assert (done.returncode, done.stdout, done.stderr.strip(), done.ok) == (1, "out\n", "err", False)


def test_the_signal_is_named() -> None:
    done = process.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], timeout=20)
    assert done.signal_name == "SIGSEGV"
    assert process.run(["sh", "-c", "exit 132"], timeout=20).signal_name == "SIGILL"
    assert process.run(["sh", "-c", "exit 1"], timeout=20).signal_name is None


def test_a_hang_is_killed_with_its_children() -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    done = process.run([sys.executable, "-c", code], timeout=2)
    assert done.timed_out
    assert done.seconds < 20
    grandchild = int(done.stdout)
    for _ in range(100):
        if not _running(grandchild):
            return
        time.sleep(0.05)
    pytest.fail(f"process {grandchild} outlived its parent's time limit")


def _running(pid: int) -> bool:
    state = process.run(["ps", "-o", "stat=", "-p", str(pid)], timeout=20).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_a_program_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(SetupError, match=r"cannot start no-such-program: no such file"):
        process.run(["no-such-program"], timeout=5)
