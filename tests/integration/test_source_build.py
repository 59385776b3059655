"""Source-built runners, on a stand-in checkout with real git, real CMake and real compilers."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import IN_CI, ON_ARM, missing
from model_profiling.runner.source_build import build, toolchain
from model_profiling.runner.source_build.build import Tools, build_runners, plan_builds
from model_profiling.runner.source_build.presets import (
    USER_PRESETS,
    choose_presets,
    fetch_source,
    merge_presets,
    runner_presets,
)
from model_profiling.runner.source_build.stand_ins import RECORD
from said import says

from model_profiling.config.reading import checked_config
from model_profiling.core.errors import FormatError, InputError, RunError, SetupError
from model_profiling.core.process import run

ROOT = Path(__file__).resolve().parents[2]
STANDIN = ROOT / "tests" / "data" / "executorch_standin"
SCRIPT = ROOT / "model_profiling" / "scripts" / "build_runners.sh"
SUBMODULE = "backends/xnnpack/third-party/XNNPACK"
PLATFORMS = ("mac-arm64", "linux-arm64", "android-arm64-v9a")
HERE = "mac-arm64" if sys.platform == "darwin" else "linux-arm64"
ANDROID = "android-arm64-v9a"
FOR_ARM64 = ("cc", "c++") if ON_ARM else ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++")


@pytest.fixture
def as_on_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in holds no Arm code: what is built where it runs can be built and run on any machine."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")


@pytest.fixture(scope="session")
def cmake() -> toolchain.Cmake:
    try:
        return toolchain.find_cmake()
    except SetupError as lacking:
        missing(str(lacking))


@pytest.fixture
def tools(cmake: toolchain.Cmake) -> Tools:
    """The machine's own compiler, which need not know SME2: the stand-in has no SME2 code."""
    c, cxx = shutil.which("cc"), shutil.which("c++")
    assert c and cxx, "no compiler"
    return Tools(cmake, toolchain.Compiler(Path(c), Path(cxx), "test", "0"), None)


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
    fetch_source(f"file://{origin}", "v0.0.1", dest)
    return dest


def make(checkout: Path, names: list[str], tools: Tools, **options: object) -> list[build.BuiltRunner]:
    plans = plan_builds(checkout, choose_presets(names), tools, **options)
    return list(build_runners(checkout, plans, tools))


class TestPresets:
    def test_there_is_one_for_each_platform_switch_and_log(self) -> None:
        suffixes = ("", "-xnnlog", "-sme2-off", "-sme2-off-xnnlog")
        assert set(runner_presets()) == {platform + suffix for platform in PLATFORMS for suffix in suffixes}

    @pytest.mark.parametrize("name", runner_presets())
    def test_on_and_off_differ_in_the_sme_switches_and_a_trace_in_its_log_only(self, name: str) -> None:
        preset = runner_presets()[name]
        assert not [variable for variable in preset.cache_variables if variable.endswith("_FLAGS")]
        other = runner_presets()[preset.counterpart]
        assert other.counterpart == name and other.sme2 is not preset.sme2
        mine, theirs = dict(preset.cache_variables), dict(other.cache_variables)
        for switch in ("XNNPACK_ENABLE_ARM_SME", "XNNPACK_ENABLE_ARM_SME2"):
            assert {mine.pop(switch), theirs.pop(switch)} == {"ON", "OFF"}
        assert mine == theirs
        if not name.endswith("-xnnlog"):
            trace = dict(runner_presets()[f"{name}-xnnlog"].cache_variables)
            assert trace.pop("EXECUTORCH_XNNPACK_LOG_LEVEL") == "5" and trace == preset.cache_variables

    def test_merging_twice_changes_nothing_and_touches_no_tracked_file(self, checkout: Path) -> None:
        assert merge_presets(checkout)
        first = (checkout / USER_PRESETS).read_bytes()
        assert not merge_presets(checkout)
        assert (checkout / USER_PRESETS).read_bytes() == first
        assert git(checkout, "status", "--porcelain") == f"?? {USER_PRESETS}"

    def test_a_user_s_own_presets_stay(self, checkout: Path) -> None:
        mine = {
            "version": 9,
            "cmakeMinimumRequired": {"major": 3, "minor": 30, "patch": 0},
            "configurePresets": [{"name": "mine", "generator": "Ninja"}],
            "testPresets": [{"name": "t", "configurePreset": "mine"}],
        }
        path = checkout / USER_PRESETS
        path.write_text(json.dumps(mine))
        merge_presets(checkout)
        merged = json.loads(path.read_text())
        assert merged["version"] == 9 and merged["testPresets"] == mine["testPresets"]
        assert merged["configurePresets"][0] == {"name": "mine", "generator": "Ninja"}
        assert {preset["name"] for preset in merged["configurePresets"]} > set(runner_presets())

    def test_an_older_form_of_the_kit_s_presets_is_replaced(self, checkout: Path) -> None:
        merge_presets(checkout)
        path = checkout / USER_PRESETS
        wanted = path.read_text()
        older = json.loads(wanted)
        older["configurePresets"][-1]["inherits"] = ["gone"]
        older["configurePresets"].append({"name": "retired", "vendor": {"sme2-profiling-kit": {}}})
        path.write_text(json.dumps(older))
        assert merge_presets(checkout)
        assert path.read_text() == wanted

    @pytest.mark.parametrize("file", [USER_PRESETS, "CMakePresets.json"])
    def test_another_preset_of_the_same_name_is_not_overwritten(self, checkout: Path, file: str) -> None:
        text = json.dumps({"version": 6, "configurePresets": [{"name": "mac-arm64"}]})
        (checkout / file).write_text(text)
        with pytest.raises(InputError, match=rf"{file} .*mac-arm64"):
            merge_presets(checkout)
        assert (checkout / file).read_text() == text

    @pytest.mark.parametrize("text", ["{", "[]", '{"version": "six"}', '{"version": 6, "buildPresets": [1]}'])
    def test_user_presets_that_cannot_be_read_are_left_alone(self, checkout: Path, text: str) -> None:
        (checkout / USER_PRESETS).write_text(text)
        with pytest.raises(FormatError, match=USER_PRESETS):
            merge_presets(checkout)
        assert (checkout / USER_PRESETS).read_text() == text

    def test_groups_hold_android_only_with_an_ndk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not any(preset.is_android for preset in choose_presets(["all"]))
        monkeypatch.setenv("ANDROID_NDK", "/somewhere")
        assert sum(preset.is_android for preset in choose_presets(["timing"])) == 2

    def test_a_preset_of_another_machine_or_no_preset_is_refused(self) -> None:
        elsewhere = next(name for name, preset in runner_presets().items() if not preset.builds_here)
        with pytest.raises(InputError, match=rf"{elsewhere}\b.*this machine"):
            choose_presets([elsewhere])
        with pytest.raises(InputError, match=r"\bnonsense; .*mac-arm64"):
            choose_presets(["nonsense"])


class TestFetch:
    def test_a_checkout_is_shallow_and_has_its_submodules(self, origin: Path, tmp_path: Path) -> None:
        (origin / "more.txt").write_text("more")
        git(origin, "add", "more.txt")
        git(origin, "commit", "--quiet", "--message", "second")
        dest = tmp_path / "executorch"
        commit = fetch_source(f"file://{origin}", "main", dest)
        assert commit == git(origin, "rev-parse", "HEAD") == git(dest, "rev-parse", "HEAD")
        assert git(dest, "rev-list", "--count", "HEAD") == "1"
        assert fetch_source(f"file://{origin}", commit, tmp_path / "by_commit") == commit
        assert (dest / SUBMODULE / "CMakeLists.txt").is_file()
        toolchain.check_checkout(dest)

    def test_a_complete_checkout_is_left_alone_without_the_network(self, origin, checkout) -> None:
        shutil.rmtree(origin.parent)
        assert fetch_source(f"file://{origin}", "v0.0.1", checkout) == git(checkout, "rev-parse", "HEAD")

    def test_an_interrupted_fetch_goes_on(self, origin: Path, tmp_path: Path) -> None:
        dest, submodule = tmp_path / "executorch", origin.parent / "XNNPACK"
        submodule.rename(submodule.with_name("away"))
        with pytest.raises(SetupError, match="git submodule failed"):
            fetch_source(f"file://{origin}", "v0.0.1", dest)
        assert (dest / "CMakeLists.txt").is_file()
        with pytest.raises(InputError, match="does not have its submodule"):
            toolchain.check_checkout(dest)
        submodule.with_name("away").rename(submodule)
        fetch_source(f"file://{origin}", "v0.0.1", dest)
        toolchain.check_checkout(dest)

    def test_changes_of_one_s_own_are_not_switched_away(self, origin: Path, checkout: Path) -> None:
        (origin / "more.txt").write_text("more")
        git(origin, "add", "more.txt")
        git(origin, "commit", "--quiet", "--message", "second")
        (checkout / "version.txt").write_text("mine")
        with pytest.raises(InputError, match="has uncommitted changes"):
            fetch_source(f"file://{origin}", "main", checkout)
        git(checkout, "checkout", "--quiet", "version.txt")
        assert fetch_source(f"file://{origin}", "main", checkout) == git(origin, "rev-parse", "main")

    def test_what_cannot_be_fetched_is_one_line(self, origin: Path, tmp_path: Path) -> None:
        with pytest.raises(SetupError, match=r"git fetch failed: .*v9.9.9") as caught:
            fetch_source(f"file://{origin}", "v9.9.9", tmp_path / "executorch")
        assert "\n" not in str(caught.value)
        with pytest.raises(SetupError, match="git fetch failed"):
            fetch_source(f"file://{tmp_path}/nowhere", "main", tmp_path / "other")

    def test_a_folder_with_other_things_in_it_is_refused(self, origin: Path, tmp_path: Path) -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        with pytest.raises(InputError, match="is not a git checkout"):
            fetch_source(f"file://{origin}", "main", tmp_path / "full")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def clang_that_says(path: Path, major: int, rest: str) -> Path:
    """A compiler that introduces itself as Clang and then does something else."""
    macros = f"#define __clang__ 1\\n#define __clang_major__ {major}\\n"
    program(path.with_name(path.name.replace("clang", "clang++")), "exit 1")
    return program(path, f'case "$*" in *-dM*) printf "{macros}"; exit 0;; esac\n{rest}')


def sme2_compiler() -> toolchain.Compiler | None:
    try:
        return toolchain.find_compiler()
    except SetupError:
        return None


# In CI it runs and fails without one: `make test` installs clang on Arm. Elsewhere Android's is asked.
needs_sme2_compiler = pytest.mark.skipif(
    ON_ARM and not IN_CI and sme2_compiler() is None,
    reason="no compiler here can build SME2 (clang 18 or newer can)",
)


class TestToolchain:
    def test_every_compiler_here_gets_the_answer_it_deserves(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = 0
        for name in ("gcc", "clang", *(f"{kind}-{n}" for kind in ("gcc", "clang") for n in range(9, 25))):
            if shutil.which(name) is None:
                continue
            seen += 1
            monkeypatch.setenv("CC", name)
            version = int(run([name, "-dumpversion"], timeout=60).stdout.split(".")[0])
            minimum = 14 if "gcc" in name else 18
            try:
                found = toolchain.find_compiler()
            except SetupError as refused:
                assert version < minimum or "cannot compile SME2" in str(refused)
            else:
                assert version >= minimum and found.version.startswith(f"{version}.")
                assert run([found.cxx, "--version"], timeout=60).ok
        assert seen, "there is no compiler at all"

    @pytest.mark.parametrize(
        ("major", "does", "problem"),
        [
            # It would compile: the version alone must refuse it, because XNNPACK goes by the version.
            (17, "exit 0", r"Clang 17\.0\.0.*; .*Clang 18"),
            (
                19,
                "echo \"p.c:1: fatal error: 'arm_sme.h' not found\" >&2; exit 1",
                r"SME2.*: 'arm_sme\.h' not",
            ),
        ],
    )
    def test_a_compiler_without_sme2_is_refused(self, tmp_path, monkeypatch, major, does, problem) -> None:
        monkeypatch.setenv("CC", str(clang_that_says(tmp_path / "clang", major, does)))
        with pytest.raises(SetupError, match=problem):
            toolchain.find_compiler()

    def test_no_compiler_and_a_wrong_one_say_so(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(SetupError, match="no C compiler found"):
            toolchain.find_compiler()
        monkeypatch.setenv("CC", "no-such-compiler")
        with pytest.raises(SetupError, match="compiler no-such-compiler"):
            toolchain.find_compiler()

    def test_an_unsuitable_cc_gives_way_to_a_suitable_one(self, tmp_path, monkeypatch) -> None:
        program(tmp_path / "cc", "printf '#define __GNUC__ 12\\n'")
        good = clang_that_says(tmp_path / "clang-20", 20, "exit 0")
        monkeypatch.setenv("PATH", f"{tmp_path}")
        assert toolchain.find_compiler().c == good

    @pytest.mark.slow
    def test_what_is_missing_is_put_into_the_environment(self, tmp_path: Path) -> None:
        assert run([sys.executable, "-m", "venv", tmp_path / "env"], timeout=120).ok
        code = "from model_profiling.runner.source_build.toolchain import get_cmake; print(get_cmake().path)"
        env = {"PYTHONPATH": str(ROOT), "PATH": "/nowhere"}
        done = run([tmp_path / "env/bin/python", "-c", code], timeout=600, env=env)
        assert done.stdout.strip() == str(tmp_path / "env/bin/cmake"), done.tail()

    def test_an_old_cmake_is_refused_and_a_newer_one_behind_it_found(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        program(tmp_path / "old" / "cmake", "echo cmake version 3.25.1")
        monkeypatch.setenv("PATH", f"{tmp_path / 'old'}")
        with pytest.raises(SetupError, match=r"CMake 3\.29 .*; .*/old/cmake is 3\.25\.1"):
            toolchain.find_cmake()
        program(tmp_path / "new" / "cmake", "echo cmake version 3.29.0")
        monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:{tmp_path / 'new'}")
        with pytest.raises(SetupError, match="Ninja is not installed"):
            toolchain.find_cmake()
        program(tmp_path / "new" / "ninja", "exit 0")
        assert toolchain.find_cmake().path == tmp_path / "new" / "cmake"

    def test_a_python_without_torchgen_is_refused(self, tmp_path, monkeypatch) -> None:
        bare = program(tmp_path / "python", f'exec "{sys.executable}" -I -S "$@"')
        monkeypatch.setattr(sys, "executable", str(bare))
        with pytest.raises(SetupError, match="cannot import torchgen"):
            toolchain.check_torchgen()

    def test_the_ndk_is_checked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(SetupError, match="ANDROID_NDK is not set"):
            toolchain.find_ndk()
        with monkeypatch.context() as patch, pytest.raises(SetupError, match="ANDROID_NDK is not set"):
            patch.setattr(toolchain, "get_cmake", pytest.fail)  # which may download it
            build.find_tools([runner_presets()[ANDROID]])
        monkeypatch.setenv("ANDROID_NDK", str(tmp_path))
        with pytest.raises(SetupError, match=rf"{tmp_path} .*source\.properties"):
            toolchain.find_ndk()
        make_ndk(tmp_path, "26.3.11579264")
        with pytest.raises(SetupError, match=r"r26\.3\.11579264.*SME2"):
            toolchain.find_ndk()
        make_ndk(tmp_path, "27.2.12479018")
        found = toolchain.find_ndk()
        assert found.revision == "27.2.12479018" and found.compiler.cxx.name == "clang++"

    def test_a_checkout_must_be_called_executorch(self, checkout: Path, tmp_path: Path) -> None:
        other = checkout.rename(tmp_path / "et")
        with pytest.raises(InputError, match=r"\bet; .*executorch"):
            toolchain.check_checkout(other)
        with pytest.raises(InputError, match="is not an ExecuTorch checkout"):
            toolchain.check_checkout(tmp_path)


def make_ndk(root: Path, revision: str) -> None:
    """An NDK's layout around a compiler for arm64, which makes the same kind of file on Linux."""
    c, cxx = (shutil.which(name) for name in FOR_ARM64)
    (root / "source.properties").write_text(f"Pkg.Desc = Android NDK\nPkg.Revision = {revision}\n")
    toolchain_file = root / "build" / "cmake" / "android.toolchain.cmake"
    toolchain_file.parent.mkdir(parents=True, exist_ok=True)
    toolchain_file.write_text(f'set(CMAKE_C_COMPILER "{c}")\nset(CMAKE_CXX_COMPILER "{cxx}")\n')
    clang_that_says(
        root / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64" / "bin" / "clang", 18, "exit 0"
    )


@pytest.fixture
def ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NDK that builds."""
    if lacking := [name for name in FOR_ARM64 if shutil.which(name) is None]:
        missing(lacking[0])
    (tmp_path / "ndk").mkdir()
    make_ndk(tmp_path / "ndk", "27.2.12479018")
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path / "ndk"))


@pytest.mark.usefixtures("as_on_arm")
class TestBuild:
    def test_on_and_off_are_built_verified_and_recorded(self, checkout: Path, tools: Tools) -> None:
        on, off = make(checkout, [HERE, f"{HERE}-sme2-off"], tools)
        assert on.binary == checkout / "cmake-out" / HERE / "executor_runner"
        assert on.verified == off.verified == "ran --help"
        assert run([on.binary], timeout=60).stdout == "sme2=1 log=0\n"
        assert run([off.binary], timeout=60).stdout == "sme2=0 log=0\n"
        record = json.loads((on.binary.parent / RECORD).read_text())
        assert record["schema_version"] == 1 and record["sme2"] is True and record["xnnlog"] is False
        inputs = record["inputs"]
        assert inputs["executorch"] == {
            "version": "0.0.1",
            "commit": git(checkout, "rev-parse", "HEAD"),
            "changed": False,
            "xnnpack_commit": git(checkout / SUBMODULE, "rev-parse", "HEAD"),
        }
        assert inputs["cmake"] == tools.cmake.version and inputs["compiler"]["version"] == "0"
        assert inputs["cache_variables"]["XNNPACK_ENABLE_ARM_SME2"] == "ON"
        (trace,) = make(checkout, [f"{HERE}-sme2-off-xnnlog"], tools)
        assert run([trace.binary], timeout=60).stdout == "sme2=0 log=5\n"

    def test_finished_presets_are_skipped_until_something_changes(self, checkout: Path, tools: Tools) -> None:
        names = [HERE]
        (first,) = make(checkout, names, tools)
        stamp = first.binary.stat().st_mtime_ns
        (second,) = make(checkout, names, tools)
        assert second.seconds == 0 and second.verified == "ran --help"
        assert first.binary.stat().st_mtime_ns == stamp

        def finished(**options: object) -> bool:
            plans = plan_builds(checkout, choose_presets(names), tools, **options)
            return plans[0].finished

        assert finished()
        assert not finished(force=True)
        assert not finished(defines=["X=1"])
        source = checkout / "executor_runner.cpp"
        text = source.read_text()
        source.write_text(text.replace("sme2=", "now="))
        assert not finished(), "changed sources have no commit to go by"
        (third,) = make(checkout, names, tools)
        assert run([third.binary], timeout=60).stdout.startswith("now=1")
        git(checkout, "commit", "--quiet", "--all", "--message", "mine")
        assert not finished()

    def test_a_damaged_binary_and_force_build_again(self, checkout: Path, tools: Tools) -> None:
        (built,) = make(checkout, [HERE], tools)
        library = next(built.binary.parent.rglob("libXNNPACK.a"))
        stamp = library.stat().st_mtime_ns
        built.binary.write_bytes(b"")
        (again,) = make(checkout, [HERE], tools)
        assert again.seconds > 0 and library.stat().st_mtime_ns == stamp
        assert run([again.binary], timeout=60).stdout == "sme2=1 log=0\n"
        (forced,) = make(checkout, [HERE], tools, force=True)
        assert forced.seconds > 0 and library.stat().st_mtime_ns > stamp

    def test_a_failed_build_says_why_and_goes_on_when_repaired(self, checkout: Path, tools: Tools) -> None:
        source = checkout / "executor_runner.cpp"
        text = source.read_text()
        source.write_text(text + "\nthis is an error;\n")
        with pytest.raises(SetupError, match=rf"{HERE}.*executor_runner.cpp.* error: ") as caught:
            make(checkout, [HERE], tools)
        assert caught.value.fix == f"see {checkout}/cmake-out/{HERE}.log"
        assert "error" in (checkout / "cmake-out" / f"{HERE}.log").read_text()
        # How much was built by then is up to the machine; a file of ours shows that the folder is kept too.
        folder = checkout / "cmake-out" / HERE
        (folder / "ours").touch()
        built_before = {
            path: path.stat().st_mtime_ns for path in (*folder.rglob("*.o"), *folder.rglob("*.a"))
        }
        source.write_text(text)
        (built,) = make(checkout, [HERE], tools)
        assert built.binary.is_file() and (folder / "ours").is_file()
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
    def test_a_build_that_is_not_what_was_asked_for_is_refused(
        self, checkout: Path, tools: Tools, define: str, problem: str
    ) -> None:
        with pytest.raises(SetupError, match=problem):
            make(checkout, [HERE], tools, defines=[define])
        assert not (checkout / "cmake-out" / HERE / "executor_runner").exists()

    @pytest.mark.parametrize("order", [("", "-sme2-off"), ("-sme2-off", "")], ids=["on first", "off first"])
    def test_a_flag_that_only_one_of_a_pair_has_is_refused(self, checkout, tools, order) -> None:
        names = [f"{HERE}{suffix}" for suffix in order]
        with pytest.raises(SetupError, match=rf"{HERE} .*{HERE}-sme2-off .*\b1 files.*kernels\.c"):
            make(checkout, names, tools, defines=["STANDIN_CONFOUND=ON"])

    def test_a_program_that_is_no_executor_runner_is_refused(self, checkout: Path, tools: Tools) -> None:
        (checkout / "executor_runner.cpp").write_text("#include <cstdlib>\nint main() { std::abort(); }\n")
        with pytest.raises(RunError, match=r"--help .*SIGABRT"):
            make(checkout, [HERE], tools)
        assert not (checkout / "cmake-out" / HERE / RECORD).exists()

    def test_another_compiler_starts_the_folder_afresh(self, checkout: Path, tools: Tools) -> None:
        make(checkout, [HERE], tools)
        assert tools.compiler
        gcc = toolchain.Compiler(tools.compiler.c, tools.compiler.cxx, "test", "1")
        (plan,) = plan_builds(checkout, choose_presets([HERE]), Tools(tools.cmake, gcc, None))
        assert "--fresh" in plan.configure and not plan.finished

    def test_two_builds_in_one_checkout_do_not_mix(self, checkout: Path, tools: Tools) -> None:
        (checkout / "cmake-out").mkdir()
        with (checkout / "cmake-out" / ".sme2prof.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(InputError, match="is in use by another run"):
                make(checkout, [HERE], tools)

    def test_a_step_that_hangs_is_ended(self, checkout: Path, tools: Tools, monkeypatch) -> None:
        monkeypatch.setattr(build, "_CONFIGURE_LIMIT", 2.0)
        with pytest.raises(SetupError, match="took longer than 2 s"):
            make(checkout, [HERE], tools, defines=["STANDIN_SLEEP=60"])

    @pytest.mark.usefixtures("ndk")
    def test_android_is_verified_by_its_header(self, checkout: Path, tools: Tools) -> None:
        with_ndk = Tools(tools.cmake, None, toolchain.find_ndk())
        (built,) = make(checkout, [ANDROID], with_ndk)
        assert built.verified in ("ELF header says aarch64", "Mach-O header says arm64")
        record = json.loads((built.binary.parent / RECORD).read_text())
        assert record["inputs"]["ndk"] == "27.2.12479018"
        assert record["inputs"]["cache_variables"]["ANDROID_ABI"] == "arm64-v8a"


def elf(bits: int, machine: int) -> bytes:
    return b"\x7fELF" + bytes([bits, 1, 1, *[0] * 9]) + struct.pack("<HH", 3, machine) + bytes(44)


def macho(machine: int) -> bytes:
    return struct.pack("<IIII", 0xFEEDFACF, machine, 0, 2) + bytes(48)


@pytest.mark.parametrize(
    ("content", "verified"),
    [
        (elf(2, 183), "ELF header says aarch64"),
        (macho(0x0100000C), "Mach-O header says arm64"),
        *(
            (wrong, "")
            for wrong in (b"", b"#!/bin/sh\n" + b"x" * 100, elf(2, 62), elf(1, 183), elf(2, 183)[:20])
        ),
        (macho(0x01000007), ""),
    ],
)
def test_a_program_that_cannot_run_here_is_known_by_its_header(tmp_path, content, verified) -> None:
    preset = next(preset for preset in runner_presets().values() if not preset.runs_here)
    with pytest.raises(SetupError, match="the build left no"):
        build.verify_binary(tmp_path / "runner", preset)
    (tmp_path / "runner").write_bytes(content)
    if verified:
        assert build.verify_binary(tmp_path / "runner", preset) == verified
    else:
        with pytest.raises(FormatError):
            build.verify_binary(tmp_path / "runner", preset)


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
    def test_help_and_list(self, script: Script) -> None:
        done = script("--help")
        assert done.returncode == 0
        assert all(
            flag in done.stdout for flag in ("--presets", "--jobs", "--force", "--dry-run", "--define")
        )
        assert script("--list").stdout.split("\n")[0].startswith("mac-arm64")

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("--executorch", "/nowhere"), "is not an ExecuTorch checkout"),
            (("--presets", "nonsense"), "there is no preset nonsense"),
            (("--jobs", "0"), "--jobs 0"),
        ],
    )
    def test_bad_input_is_one_line(self, script, checkout, arguments, problem) -> None:
        done = script(*arguments, EXECUTORCH_DIR=str(checkout))
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and problem in done.stderr and done.stderr.count("\n") == 1

    @pytest.mark.quick
    def test_a_wrong_ndk_is_refused_before_anything_is_written(self, script: Script, tmp_path: Path) -> None:
        checkout = tmp_path / "executorch"
        for words in ((), ("--presets", ANDROID), ("--from-source", "--dry-run")):
            done = script("--executorch", checkout, *words, ANDROID_NDK=str(tmp_path))
            assert done.returncode == 2 and not checkout.exists()
            (line,) = done.stderr.splitlines()
            assert line.startswith(f"error: {tmp_path} is not an Android NDK") and "ANDROID_NDK" in line

    def test_an_old_compiler_is_refused_before_anything_is_written(
        self, script: Script, checkout: Path, tmp_path: Path, cmake: toolchain.Cmake
    ) -> None:
        del cmake
        old = clang_that_says(tmp_path / "clang", 17, "exit 0")
        done = script("--executorch", checkout, CC=str(old))
        assert done.returncode == 2
        # A machine that is not Arm has no use for the compiler; without an NDK it can build nothing.
        says(done.stderr, *(("Clang 17.0.0", "Clang 18") if ON_ARM else ("ANDROID_NDK",)))
        assert git(checkout, "status", "--porcelain", "--ignored") == ""

    def test_without_a_checkout_the_kits_runner_takes_the_places(
        self, script: Script, tmp_path: Path
    ) -> None:
        checkout = tmp_path / "executorch"
        assert script("--executorch", checkout, "--dry-run").returncode == 0 and not checkout.exists()
        done = script("--executorch", checkout)
        assert done.returncode == 0, done.stderr
        runners = sorted(checkout.glob("cmake-out/*/executor_runner"))
        assert [path.parent.name for path in runners] == sorted(runner_presets())
        says(done.stderr, "--from-source", *(() if ON_ARM else ("not Arm", "no time")))
        off = "executorch/cmake-out/mac-arm64-sme2-off/executor_runner"
        trace = "executorch/cmake-out/mac-arm64-xnnlog/executor_runner"
        (tmp_path / "m.pte").write_bytes(b"not read")
        both = [{"name": "a", "runner_path": off}, {"name": "b", "runner_path": trace}]
        raw = {"model": "m.pte", "output_root": "out", "experiments": both}
        first, second = checked_config(raw, folder=tmp_path).experiments
        assert (first.runner, first.sme2, first.mode) == (None, "off", "timing")
        assert (second.runner, second.sme2, second.mode) == (None, "on", "xnntrace")
        wrong = run([runners[-1], "--model_path=gone.pte"], timeout=60)
        assert wrong.returncode == 2 and wrong.stderr.startswith("error: there is no program gone.pte")
        built = checkout / "cmake-out" / HERE / "executor_runner"
        (built.with_name(RECORD)).write_text("{}")
        built.write_text("built from source")
        assert script("--executorch", checkout).returncode == 0 and built.read_text() == "built from source"

    @needs_sme2_compiler
    def test_from_nothing_to_two_runners(self, script, origin, cmake, request, tmp_path) -> None:
        """This machine's own, or Android's on a machine that is not Arm; the sources are fetched."""
        del cmake
        checkout = tmp_path / "executorch"
        source = ("--url", f"file://{origin}", "--ref", "v0.0.1")
        name, seen = (HERE, "ran --help") if ON_ARM else (ANDROID, "ELF header says aarch64")
        if not ON_ARM:
            request.getfixturevalue("ndk")
        first = script("--executorch", checkout, *source, "--dry-run")
        assert first.returncode == 0 and not checkout.exists(), first.stderr
        says(first.stdout, "v0.0.1", f"file://{origin}", str(checkout))
        fetch_source(f"file://{origin}", "v0.0.1", checkout)
        planned = script("--executorch", checkout, "--dry-run")
        assert planned.returncode == 0, planned.stderr
        assert f"{name}-sme2-off: would run" in planned.stdout
        assert git(checkout, "status", "--porcelain", "--ignored") == "", "a dry run writes nothing"
        shutil.rmtree(checkout)
        done = script("--executorch", checkout, *source, "--jobs", "2")
        assert done.returncode == 0, done.stderr
        says(done.stdout, str(checkout), git(checkout, "rev-parse", "HEAD"))
        assert done.stdout.count(seen) == 2 and ("ANDROID_NDK is not set" in done.stderr) is ON_ARM
        again = script("--executorch", checkout)
        assert again.stdout.count(f"was finished, {seen}") == 2

    def test_the_kit_fetches_by_command(self, origin: Path, tmp_path: Path) -> None:
        module = [sys.executable, "-m", "model_profiling.runner.source_build"]
        dest = tmp_path / "executorch"
        fetch = [*module, "fetch", "--url", f"file://{origin}", "--dest", dest, "--ref"]
        fetched = run([*fetch, "v0.0.1"], timeout=120)
        assert fetched.ok and git(dest, "rev-parse", "HEAD") in fetched.stdout
        for said in ("presets written\n", "presets were already there\n"):
            assert run([*module, "merge", "--executorch", dest], timeout=60).stdout == said
        wrong = run([*fetch, "v9"], timeout=120)
        assert wrong.returncode == 2 and wrong.stderr.splitlines()[-1].startswith("error: git fetch failed")
