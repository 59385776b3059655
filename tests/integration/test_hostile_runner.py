"""Runners that say too much, go on in sessions of their own, or leave something behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from conftest import ROOT
from recorded_runs import raw_config
from stand_ins import command, wait_until

from model_profiling.targets.execution import Transport

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these runners use commands of Linux")
PROGRAM = ROOT / "tests" / "data" / "etdump" / "three_delegates.pte"


def _start(folder: Path, runner: str, *, memory_kib: int | str = "unlimited") -> subprocess.Popen[str]:
    """`sme2prof run` of a config whose runner is the given script, in a session of its own."""
    own = {"name": "own", "runner_path": str(command(folder, "executor_runner", runner))}
    config = raw_config(folder / "run", [own], program=PROGRAM, schedule={"rounds": 3, "timeout_s": 2})
    (folder / "c.json").write_text(json.dumps(config))
    words = [sys.executable, "-m", "model_profiling", "run", "c.json"]

    limited = ["sh", "-c", f'ulimit -v {memory_kib}; exec "$@"', "sh", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    alone = {"cwd": folder, "env": env, "stdout": subprocess.DEVNULL, "start_new_session": True}
    return subprocess.Popen(limited, stderr=subprocess.PIPE, text=True, **alone)


def test_a_log_without_end_takes_neither_memory_nor_disk(tmp_path: Path) -> None:
    talking = _start(
        tmp_path, "head -c 400000000 /dev/zero | tr '\\0' x; echo why >&2; exit 1", memory_kib=1 << 20
    )
    said = talking.communicate(timeout=100)[1]
    assert talking.returncode == 2, said
    assert "unexpected" not in said and len(said) < 5000
    logs = [path for path in (tmp_path / "run").rglob("*.log") if path.stat().st_size > 1000]
    assert logs
    for log in logs:
        assert log.stat().st_size < 17 << 20
        assert b" bytes left out]\n" in log.read_bytes()


def test_what_a_runner_leaves_running_ends_with_it(tmp_path: Path) -> None:
    leaving = ["sh", "-c", "setsid -f sh -c 'echo $$; exec sleep 46'; sleep 0.3"]
    done = Transport().run(leaving, folder=str(tmp_path), timeout=20, cores=())
    assert done.ok and done.seconds < 10
    wait_until(lambda: not psutil.pid_exists(int(done.stdout)), "the end of what it left", 5)
