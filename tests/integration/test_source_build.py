"""Source-built runners, on a stand-in checkout with real git, real CMake and real compilers."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from said import refused, says

from model_profiling.compat import source_build
from model_profiling.compat.source_build import (
    PLATFORMS,
    PRESETS,
    build_runner,
    cache_variables,
    choose_presets,
    commands,
)
from model_profiling.config.reading import RECORD, parse_config
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.process import run

ROOT = Path(__file__).resolve().parents[2]
STANDIN = ROOT / "tests" / "data" / "executorch_standin"
SCRIPT = ROOT / "model_profiling" / "scripts" / "build_runners.sh"
SUBMODULE = "backends/xnnpack/third-party/XNNPACK"
HERE = "mac-arm64" if sys.platform == "darwin" else "linux-arm64"
ANDROID = "android-arm64-v9a"
FOR_ARM64 = ("cc", "c++") if ON_ARM else ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")


@pytest.fixture
def as_on_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in holds no Arm code: what is built where it runs can be built and run on any machine."""
    if lacking := [name for name in ("cmake", "ninja") if shutil.which(name) is None]:
        missing(lacking[0])
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.fixture(autouse=True)
def quiet_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git that needs no user's settings and may fetch submodules from folders."""
    settings = {"protocol.file.allow": "always", "user.name": "t", "user.email": "t@example.org"}
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(len(settings)))
    for number, (key, value) in enumerate(settings.items()):
        monkeypatch.setenv(f"GIT_CONFIG_KEY_{number}", key)
        monkeypatch.setenv(f"GIT_CONFIG_VALUE_{number}", value)
    for name in ("CC", "CXX", "ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "EXECUTORCH_DIR"):
        monkeypatch.delenv(name, raising=False)


def git(folder: Path, *words: str) -> str:
    done = run(["git", "-C", folder, *words], timeout=60)
    assert done.ok, done.tail()
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A git repository of the stand-in, with XNNPACK as its submodule and the tag v0.0.1."""
    for name, source in (("XNNPACK", "XNNPACK"), ("executorch", "checkout")):
        folder = tmp_path / "origin" / name
        shutil.copytree(STANDIN / source, folder)
        git(folder, "init", "--quiet", "--initial-branch", "main")
        if name == "executorch":
            git(folder, "submodule", "--quiet", "add", f"file://{folder.parent}/XNNPACK", SUBMODULE)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "first")
    git(folder, "tag", "v0.0.1")
    return folder


@pytest.fixture
def checkout(origin: Path, tmp_path: Path) -> Path:
    dest = tmp_path / "executorch"
    git(tmp_path, "clone", "--quiet", "--recurse-submodules", f"file://{origin}", str(dest))
    return dest


def make(checkout: Path, preset: str = HERE, *defines: str) -> Path:
    return build_runner(checkout, preset, *commands(checkout, preset, defines))


class TestPresets:
    def test_there_is_one_for_each_platform_switch_and_log(self) -> None:
        suffixes = ("", "-xnnlog", "-sme2-off", "-sme2-off-xnnlog")
        assert set(PRESETS) == {platform + suffix for platform in PLATFORMS for suffix in suffixes}

    @pytest.mark.parametrize("name", ["mac-arm64", "linux-arm64"])
    def test_on_and_off_differ_in_the_sme_switches_and_a_trace_in_its_log_only(self, name: str) -> None:
        on, off, trace = (cache_variables(name + suffix) for suffix in ("", "-sme2-off", "-xnnlog"))
        assert not [variable for variable in on if variable.endswith("_FLAGS")]
        switches = {"XNNPACK_ENABLE_ARM_SME", "XNNPACK_ENABLE_ARM_SME2"}
        assert {variable for variable in on if on[variable] != off[variable]} == switches
        assert trace.pop("EXECUTORCH_XNNPACK_LOG_LEVEL") == "5" and trace == on

    def test_groups_hold_android_only_with_an_ndk(self, as_on_arm, monkeypatch) -> None:
        del as_on_arm
        assert choose_presets(["timing"]) == [HERE, f"{HERE}-sme2-off"]
        with refused(InputError, ANDROID, fix="ANDROID_NDK"):
            choose_presets([ANDROID])
        monkeypatch.setenv("ANDROID_NDK", "/somewhere")
        assert set(choose_presets(["timing"])) > {HERE, ANDROID}
        with refused(SetupError, "/somewhere", fix="ANDROID_NDK"):
            cache_variables(ANDROID)

    def test_a_preset_of_another_machine_or_no_preset_is_refused(self) -> None:
        elsewhere = "linux-arm64" if sys.platform == "darwin" else "mac-arm64"
        with refused(InputError, elsewhere, "this machine"):
            choose_presets([elsewhere])
        with refused(InputError, "nonsense", fix="mac-arm64"):
            choose_presets(["nonsense"])


@pytest.mark.usefixtures("as_on_arm")
class TestBuild:
    def test_on_and_off_are_built_checked_and_recorded(self, checkout: Path) -> None:
        on, off, trace = (make(checkout, f"{HERE}{end}") for end in ("", "-sme2-off", "-sme2-off-xnnlog"))
        assert on == checkout / "cmake-out" / HERE / "executor_runner"
        assert run([on], timeout=60).stdout == "sme2=1 log=0\n"
        assert run([off], timeout=60).stdout == "sme2=0 log=0\n"
        assert run([trace], timeout=60).stdout == "sme2=0 log=5\n"
        record = json.loads((trace.parent / RECORD).read_text())
        assert record["schema_version"] == 1 and record["sme2"] is False and record["xnnlog"] is True
        assert git(checkout, "status", "--porcelain", "--untracked-files=no") == ""

    def test_a_failed_build_says_why_and_goes_on_when_repaired(self, checkout: Path) -> None:
        source = checkout / "executor_runner.cpp"
        text = source.read_text()
        source.write_text(text + "\nthis is an error;\n")
        with pytest.raises(SetupError, match=rf"{HERE}.*executor_runner.cpp.* error: ") as caught:
            make(checkout)
        assert caught.value.fix == f"see {checkout}/cmake-out/{HERE}.log"
        folder = checkout / "cmake-out" / HERE
        built_before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.a")}
        source.write_text(text)
        assert make(checkout).is_file()
        again = {path: path.stat().st_mtime_ns for path in built_before}
        assert again == built_before, "what was built before the failure is kept"

    @pytest.mark.parametrize(
        ("define", "problem"),
        [
            ("STANDIN_DROP_SME=ON", r"XNN_ENABLE_ARM_SME is 0.*\b1\b"),
            ("EXECUTORCH_BUILD_XNNPACK=OFF", "XNN_ENABLE_ARM_SME is not set"),
            ("EXECUTORCH_BUILD_EXECUTOR_RUNNER=OFF", r"failed: .*executor_runner"),
        ],
    )
    def test_a_build_that_is_not_what_was_asked_for_is_refused(self, checkout, define, problem) -> None:
        with pytest.raises(SetupError, match=problem):
            make(checkout, HERE, define)
        assert not (checkout / "cmake-out" / HERE / RECORD).exists()

    def test_android_is_built_with_the_ndk(self, checkout, tmp_path, monkeypatch):
        """An NDK's layout around a compiler for arm64, which makes the same kind of file on Linux."""
        c, cxx = (shutil.which(name) for name in FOR_ARM64)
        if not (c and cxx):
            missing(FOR_ARM64[0])
        toolchain = tmp_path / "ndk/build/cmake/android.toolchain.cmake"
        toolchain.parent.mkdir(parents=True)
        toolchain.write_text(f'set(CMAKE_C_COMPILER "{c}")\nset(CMAKE_CXX_COMPILER "{cxx}")\n')
        monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "ndk"))
        if sys.platform == "linux":
            assert json.loads((make(checkout, ANDROID).parent / RECORD).read_text())["preset"] == ANDROID
        assert "-DANDROID_ABI=arm64-v8a" in commands(checkout, ANDROID)[0]


Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def script() -> Script:
    def call(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPT), *map(str, arguments)],
            env={**os.environ, "PYTHON": sys.executable, **environment},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


class TestScript:
    def test_bad_input_is_one_line(self, script: Script, tmp_path: Path) -> None:
        assert all(flag in script("--help").stdout for flag in ("--from-source", "--presets", "--dry-run"))
        for words, problem in (
            (("--presets", "nonsense"), "there is no preset nonsense"),
            (("--from-source", tmp_path / "other", "--presets", HERE), "called other"),
        ):
            done = script(*words)
            if not ON_ARM and "called" in problem:
                continue
            assert done.returncode == 2
            assert done.stderr.startswith("error: ") and problem in done.stderr
            assert done.stderr.count("\n") == 1

    def test_without_sources_the_kits_runner_takes_the_places(self, script: Script, tmp_path: Path) -> None:
        checkout = tmp_path / "executorch"
        assert script("--executorch", checkout, "--dry-run").returncode == 0 and not checkout.exists()
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

    @pytest.mark.usefixtures("as_on_arm")
    def test_two_runners_of_a_checkout(self, checkout, tmp_path, capsys) -> None:
        gone = ["--from-source", str(tmp_path / "gone" / "executorch")]
        assert source_build.main(gone) == 2
        says(capsys.readouterr().err, "no source of ExecuTorch", "git clone")
        words = ["--from-source", str(checkout)]
        assert source_build.main([*words, "--dry-run"]) == 0
        says(capsys.readouterr().out, "cmake -S", f"{HERE}-sme2-off", "-DXNNPACK_ENABLE_ARM_SME2=OFF")
        assert source_build.main(words) == 0
        assert capsys.readouterr().out.count("/executor_runner: built") == 2
