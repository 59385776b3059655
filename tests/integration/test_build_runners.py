"""The kit's runner at the places of the earlier kit's, and runners built from a stand-in checkout with real
CMake and real compilers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from said import says
from stand_ins import command

from model_profiling.compat.build_runners import PRESETS
from model_profiling.config.reading import RECORD, parse_config
from model_profiling.core.process import run

ROOT = Path(__file__).resolve().parents[2]
STANDIN = ROOT / "tests" / "data" / "executorch_standin"
SCRIPT = ROOT / "model_profiling" / "scripts" / "build_runners.sh"
HERE = "mac-arm64" if sys.platform == "darwin" else "linux-arm64"
ANDROID = "android-arm64-v9a"
FOR_ARM64 = ("cc", "c++") if ON_ARM else ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """The script as on Arm: the stand-in holds no Arm code, so it is built and run on any machine."""
    answer = "arm64" if sys.platform == "darwin" else "aarch64"
    usual = f'[ "$1" = -m ] && echo {answer} || {shutil.which("uname")} "$@"'
    machine = command(tmp_path / "programs", "uname", usual)
    monkeypatch.setenv("PATH", f"{machine.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("CC", "CXX", "ANDROID_NDK", "EXECUTORCH_DIR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPT), *map(str, arguments)],
            env={**os.environ, "PYTHON": sys.executable},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if lacking := [name for name in ("cmake", "ninja") if shutil.which(name) is None]:
        missing(lacking[0])
    made = tmp_path / "executorch"
    shutil.copytree(STANDIN / "checkout", made)
    shutil.copytree(STANDIN / "XNNPACK", made / "backends/xnnpack/third-party/XNNPACK")
    return made


def test_bad_input_is_one_line(script: Script, tmp_path: Path) -> None:
    assert "--from-source" in script("--help").stdout
    elsewhere = "linux-arm64" if sys.platform == "darwin" else "mac-arm64"
    for words, problem in (
        (("nonsense",), "nonsense"),
        (("--from-source", elsewhere), f"{elsewhere} cannot be built on this machine"),
        (("--from-source", ANDROID), "ANDROID_NDK"),
        (("--from-source", "--executorch", tmp_path / "gone" / "executorch"), "setup_repo.sh --from-source"),
    ):
        done = script(*words)
        assert done.returncode and "error: " in done.stderr and problem in done.stderr
        assert done.stderr.count("\n") == 1


def test_without_sources_the_kits_runner_takes_the_places(script: Script, tmp_path: Path) -> None:
    checkout = tmp_path / "executorch"
    done = script("--executorch", checkout)
    assert done.returncode == 0, done.stderr
    runners = sorted(checkout.glob("cmake-out/*/executor_runner"))
    assert [path.parent.name for path in runners] == sorted(PRESETS)
    says(done.stderr, "--from-source", *(() if ON_ARM else ("not Arm", "no time")))
    off = "executorch/cmake-out/mac-arm64-sme2-off/executor_runner"
    trace = "executorch/cmake-out/mac-arm64-xnnlog/executor_runner"
    (tmp_path / "m.pte").write_bytes(b"not read")
    both = [{"name": "a", "runner_path": off}, {"name": "b", "runner_path": trace}]
    raw = {"model": "m.pte", "output_root": "out", "experiments": both}
    first, second = parse_config(raw, folder=tmp_path).experiments
    assert (first.runner, first.sme2, first.mode) == (None, "off", "timing")
    assert (second.runner, second.sme2, second.mode) == (None, "on", "xnntrace")
    wrong = run([runners[-1], "--model_path=gone.pte"], timeout=60)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: there is no program gone.pte")
    built = checkout / "cmake-out" / HERE / "executor_runner"
    (built.with_name(RECORD)).write_text("{}")
    built.write_text("built from source")
    assert script("--executorch", checkout).returncode == 0 and built.read_text() == "built from source"


def test_on_off_and_a_trace_are_built_and_checked(script: Script, checkout: Path) -> None:
    assert script("--executorch", checkout).returncode == 0  # what is built takes the place of the kit's
    presets = HERE, f"{HERE}-sme2-off", f"{HERE}-sme2-off-xnnlog"
    done = script("--executorch", checkout, "--from-source", *presets)
    assert done.returncode == 0 and done.stdout.count("/executor_runner: built\n") == 3, done.stderr
    runners = [checkout / "cmake-out" / preset / "executor_runner" for preset in presets]
    said = [run([runner], timeout=60).stdout for runner in runners]
    assert said == ["sme2=1 log=0\n", "sme2=0 log=0\n", "sme2=0 log=5\n"]
    assert not [runner for runner in runners if runner.with_name(RECORD).exists()]
    compiled = [(runner.parent / "compile_commands.json").read_text() for runner in runners[:2]]
    assert "-march" not in "".join(compiled), "on and off differ in nothing but the switches"
    built_before = {path: path.stat().st_mtime_ns for path in runners[0].parent.rglob("*.a")}
    again = script("--executorch", checkout, "--from-source")
    assert again.returncode == 0 and again.stdout.count("/executor_runner: built\n") == 2
    assert {path: path.stat().st_mtime_ns for path in built_before} == built_before


@pytest.mark.parametrize(
    ("define", "problem"),
    [
        ("STANDIN_DROP_SME ON", "compiled with XNN_ENABLE_ARM_SME2=0"),
        ("EXECUTORCH_BUILD_XNNPACK OFF", "no switch of SME"),
        ("EXECUTORCH_BUILD_EXECUTOR_RUNNER OFF", "executor_runner"),
    ],
)
def test_a_build_that_is_not_what_was_asked_for_is_refused(script, checkout, define, problem) -> None:
    lists = checkout / "CMakeLists.txt"
    lists.write_text(lists.read_text().replace("LANGUAGES C CXX)\n", f"LANGUAGES C CXX)\nset({define})\n"))
    done = script("--executorch", checkout, "--from-source", HERE)
    assert done.returncode and problem in done.stdout + done.stderr
    assert not (checkout / "cmake-out" / HERE / "executor_runner").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the compiler for arm64 makes files of Linux")
def test_android_is_built_with_the_ndk(script, checkout, tmp_path, monkeypatch):
    """An NDK's layout around a compiler for arm64, which makes the same kind of file on Linux."""
    c, cxx = (shutil.which(name) for name in FOR_ARM64)
    if not (c and cxx):
        missing(FOR_ARM64[0])
    toolchain = tmp_path / "ndk/build/cmake/android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    toolchain.write_text(f'set(CMAKE_C_COMPILER "{c}")\nset(CMAKE_CXX_COMPILER "{cxx}")\n')
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "ndk"))
    done = script("--executorch", checkout, "--from-source", ANDROID)
    assert done.returncode == 0 and (checkout / "cmake-out" / ANDROID / "executor_runner").exists(), (
        done.stderr
    )
    assert (
        "ANDROID_ABI:UNINITIALIZED=arm64-v8a"
        in (checkout / "cmake-out" / ANDROID / "CMakeCache.txt").read_text()
    )
