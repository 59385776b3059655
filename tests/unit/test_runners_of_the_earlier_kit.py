"""What `build_runners.sh` writes: the kit's runner where configs of the earlier kit name ExecuTorch's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import ON_ARM
from said import says

from model_profiling.compat.runners import PRESETS
from model_profiling.config.reading import RECORD, parse_config
from model_profiling.core.process import run

SCRIPT = Path(__file__).resolve().parents[2] / "model_profiling" / "scripts" / "build_runners.sh"


def script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *map(str, arguments)],
        env={**os.environ, "PYTHON": sys.executable},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_there_is_one_for_each_platform_switch_and_log() -> None:
    systems = ("mac-arm64", "linux-arm64", "android-arm64-v9a")
    suffixes = ("", "-xnnlog", "-sme2-off", "-sme2-off-xnnlog")
    assert set(PRESETS) == {system + suffix for system in systems for suffix in suffixes}


def test_bad_input_is_one_line() -> None:
    done = script("--from-source")
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_the_kits_runner_takes_the_places(tmp_path: Path) -> None:
    checkout = tmp_path / "executorch"
    done = script("--executorch", checkout)
    assert done.returncode == 0, done.stderr
    runners = sorted(checkout.glob("cmake-out/*/executor_runner"))
    assert [path.parent.name for path in runners] == sorted(PRESETS)
    says(done.stderr, "kit's own runner", *(() if ON_ARM else ("not Arm", "no time")))
    off = "executorch/cmake-out/mac-arm64-sme2-off/executor_runner"
    trace = "executorch/cmake-out/mac-arm64-xnnlog/executor_runner"
    (tmp_path / "m.pte").write_bytes(b"not read")
    both = [{"name": "a", "runner_path": off}, {"name": "b", "runner_path": trace}]
    raw = {"model": "m.pte", "output_root": "out", "experiments": both}
    first, second = parse_config(raw, folder=tmp_path).experiments
    assert (first.runner, first.sme2, first.mode) == (None, "off", "timing")
    assert (second.runner, second.sme2, second.mode) == (None, "on", "xnntrace")
    wrong = run([runners[-1], "--model_path=m.pte"], timeout=60)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and wrong.stderr.count("\n") == 1
    built = checkout / "cmake-out" / "linux-arm64" / "executor_runner"
    (built.with_name(RECORD)).write_text("{}")
    built.write_text("built from source")
    assert script("--executorch", checkout).returncode == 0 and built.read_text() == "built from source"
