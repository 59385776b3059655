"""The doctor: what it finds missing, that it says how to mend it, and its exit code."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stand_ins import command, linked, mac_commands

from model_profiling.core import process
from model_profiling.core.hints import install_extra
from model_profiling.core.hints import sme2prof as own_command
from model_profiling.core.records import Check
from model_profiling.doctor import Diagnosis, TargetState, _cpu, _diagnosis, _emulator, _host, checks, examine
from model_profiling.runner import fetching
from model_profiling.runner.features import FEATURES

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., process.Completed]


def test_this_machine_is_ready_and_says_what_it_lacks(cli: Run) -> None:
    done = cli("doctor", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert facts["ok"] is True
    by_name = {check["name"]: check for check in facts["checks"]}
    assert by_name["executorch"]["status"] == by_name["C++ compiler"]["status"] == "pass"
    assert set(facts["cpu_features"]) == set(FEATURES)
    assert {target["name"] for target in facts["targets"]} == {"host", "emulated", "android", "ssh"}
    assert all(check["fix"] for check in facts["checks"] if check["status"] in ("fail", "optional"))


@pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")
def test_what_emulation_lacks_on_a_machine_that_is_not_arm(tmp_path, monkeypatch):
    """Compiler and wheel are fetched, but not by looking."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    check, _ = _emulator()
    assert check.status == "optional" and "the first build gets one from the ziglang wheel, or" in check.fix
    assert check.found == "no C++ compiler for aarch64 Linux was found (none is installed)"
    command(tmp_path, "aarch64-linux-gnu-g++", "echo a cross compiler")
    check, _ = _emulator()
    assert "(aarch64-linux-gnu-g++ has no C++ library)" in check.found
    assert not list((tmp_path / "cache").rglob("*zig*"))


def test_apt_is_asked_once_for_its_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    said = "'http://mirror/debian/dists/bookworm/InRelease' x 0"
    command(tmp_path, "apt-get", f'echo $1 >>{asked}; echo "{said}"')
    command(tmp_path, "dpkg", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(fetching, "system_family", lambda: "debian")
    archive = fetching.Archive("Debian", "bookworm", "http://mirror/debian/")
    assert fetching.own_archive("") == fetching.own_archive("") == archive
    assert asked.read_text() == "--print-uris\n"


def test_prerequisites_need_nothing_but_a_python_that_is_new_and_whole(tmp_path: Path) -> None:
    """It runs before anything is installed; an interpreter without site-packages stands for that."""
    script = ROOT / "model_profiling/scripts/validate_setup.py"
    done = process.run([sys.executable, "-S", "-I", script, "--prerequisites", "--json"], timeout=100)
    assert done.returncode == 0, done.stderr
    names = {check["name"] for check in json.loads(done.stdout)["checks"]}
    assert names >= {"Python", "venv", "C++ compiler", "git"}
    old = command(tmp_path, "old-python", "exit 1")
    script = ROOT / "model_profiling/scripts/check_prereqs.sh"
    done = process.run(["bash", script, "--python", old], timeout=60)
    assert done.returncode == 2
    assert "no Python 3.10 to 3.13" in done.stderr
    assert process.run(["bash", script], timeout=100).returncode == 0
    bare = command(tmp_path, "bare", f'case "$2" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@"')
    command(tmp_path, "apt-get", "exit 0")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = process.run(["bash", script, "--python", bare], timeout=60, env={"PATH": path})
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 2
    assert done.stderr == f"error: Python {version} has no venv; apt install python{version}-venv\n"


def test_packages_that_do_not_fit_are_named_also_those_executorch_needs(monkeypatch):
    import importlib.metadata

    real = importlib.metadata.version

    def other(name: str) -> str:
        if name == "torchao":
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.0.0" if name == "torch" else real(name)

    assert any(check.name == "for ExecuTorch" and check.status == "pass" for check in checks.packages())
    monkeypatch.setattr(importlib.metadata, "version", other)
    found = {check.name: check for check in checks.packages()}
    torch, torchao = found["torch"], found["torchao"]
    assert (torch.status, torch.fix) == ("fail", f"{sys.executable} -m pip install torch==2.13.0")
    assert "2.0.0 is not ==2.13.0" in torch.found
    assert (torchao.status, torchao.found) == ("fail", "not installed")


NDK = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")


@pytest.mark.parametrize("variable", NDK)
def test_the_ndk_is_looked_at(variable, tmp_path, monkeypatch):
    for name in NDK:
        monkeypatch.delenv(name, raising=False)
    assert checks.ndk().found.startswith("ANDROID_NDK is not set")
    monkeypatch.setenv(variable, str(tmp_path))
    assert checks.ndk().status == "optional" and str(tmp_path) in checks.ndk().found
    toolchain = tmp_path / "build" / "cmake" / "android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    toolchain.touch()
    assert checks.ndk().status == "pass"


def keys_of(found: Any) -> Any:
    """The keys of a JSON object at every depth; entries of a list are one kind of thing."""
    if isinstance(found, dict):
        return {key: keys_of(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        kinds = [keys_of(each) for each in found]
        assert all(kind == kinds[0] for kind in kinds)
        return kinds[:1]
    return None


def test_the_facts_have_the_same_keys_on_every_machine(tmp_path, monkeypatch):
    machines = {
        ("linux", "x86_64", "x86_64"): False,
        ("linux", "aarch64", "aarch64"): False,
        ("linux", "aarch64", "aarch64_with_sme2"): True,
        ("darwin", "arm64", "m4"): True,
        ("darwin", "arm64", "m1"): False,
        ("darwin", "x86_64", "intel"): False,
    }
    keys, looked_at = [], []
    for (system, machine, record), has_sme2 in machines.items():
        with monkeypatch.context() as there:
            there.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
            # Neither a compiler nor apt: neither would answer for the other machine, and both take long.
            there.setenv("PATH", str(linked(tmp_path / "programs", ("sh", "sed", "grep", "cat", "git"))))
            if system == "darwin":
                on_a_mac(there, tmp_path / record, record, machine)
            else:
                there.setattr("platform.machine", lambda machine=machine: machine)
                cpuinfo = ROOT / "tests" / "data" / "cpuinfo" / f"{record}.txt"
                there.setattr("model_profiling.runner.features.PROC_CPUINFO", cpuinfo)
            facts = json.loads(json.dumps(examine().as_dict()))
            packages = {check.name for check in checks.packages()}
        assert facts["cpu_features"]["sme2"] is has_sme2, record
        keys.append(keys_of(facts))
        names = {f"check {check['name']}" for check in facts["checks"] if check["name"] not in packages}
        looked_at.append(names | {f"target {target['name']}" for target in facts["targets"]})
    assert keys == [keys[0]] * len(machines)
    assert looked_at == [looked_at[0]] * len(machines), "only packages may differ: a Mac needs others"


def test_what_is_optional_has_its_fix_and_does_not_fail() -> None:
    found = (
        Check("git", "pass", "git version 2"),
        Check("adb", "optional", "no adb is installed", "install adb"),
        Check("phone settings", "optional", "power mode boost is still set", "connect it"),
    )
    targets = (TargetState("host", True, "latency"),)
    text = Diagnosis(found, dict.fromkeys(FEATURES, False), targets).as_text()
    assert "fix: install adb" in text and "fix: connect it" in text, "what was left behind is to be put right"
    assert text.endswith("ready")


def test_git_and_cmake_are_only_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    assert checks.cmake().status == "optional"
    command(tmp_path, "cmake", "exit 0")
    assert "no ninja" in checks.cmake().found and "pip install" in checks.cmake().fix
    command(tmp_path / "bin", "ninja", "exit 0")  # as pip puts it
    assert checks.cmake().status == "pass"
    command(tmp_path, "git", "echo 'xcode-select: note: No developer tools were found' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    check = checks.git()
    assert (check.status, check.fix) == ("optional", "xcode-select --install")


def on_a_mac(monkeypatch: pytest.MonkeyPatch, folder: Path, mac: str, machine: str = "arm64") -> None:
    monkeypatch.setenv("PATH", f"{mac_commands(folder, mac)}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: machine)


def test_what_is_said_of_a_cpu_is_true_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_mac(monkeypatch, tmp_path / "m4", "m4")
    assert (_cpu().status, _cpu().found) == ("pass", "arm64 with SME2")
    assert _host(True).detail == "latency, SME2 on and off"
    on_a_mac(monkeypatch, tmp_path / "m1", "m1")
    assert (_cpu().status, _cpu().found) == ("skipped", "arm64 without SME2")
    assert "this CPU has no SME2" in _host(True).detail
    emulation, state = _emulator()
    assert (emulation.status, emulation.fix, state.available) == ("skipped", "", False), "none to mend"
    features = "CPU features: dotprod fp16; not on this CPU: sme2 sme sve2 sve i8mm bf16"
    assert features in _diagnosis(_cpu()).as_text().splitlines()
    command(tmp_path, "sysctl", 'case "$*" in *proc_translated) echo 1 ;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert _cpu().status == "fail" and "Rosetta" in _cpu().found
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert (_cpu().status, _cpu().found) == ("skipped", "x86_64: not an Arm CPU")
    assert "says nothing about Arm" in _host(True).detail
    text = _diagnosis(_cpu()).as_text()
    assert "CPU features: not shown, because this is not an Arm CPU (x86_64)" in text.splitlines()
    assert not [name for name in FEATURES if name in text]


def test_an_x86_64_python_on_an_arm_mac_and_a_full_disk_are_failures(tmp_path, monkeypatch, tiny_disk):
    on_a_mac(monkeypatch, tmp_path, "m4", machine="x86_64")
    command(tmp_path, "sysctl", 'case "$*" in *proc_translated) echo 1 ;; esac')
    assert _cpu().status == "fail" and "--python" in _cpu().fix
    monkeypatch.chdir(tiny_disk)
    assert checks.disk_space().status == "fail"


def test_a_phone_is_offered_when_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "case $1 in version) echo 'Version 34.0.5' ;; *) printf 'List\\nR5CT\\t%s\\n' \"$STATE\" ;; esac"
    command(tmp_path, "adb", says)
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))  # which may hold an adb of its own
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", "device")
    check, devices = checks.adb()
    assert (check.status, devices) == ("pass", ("R5CT",)) and "R5CT" in check.found
    monkeypatch.setenv("STATE", "unauthorized")
    check, devices = checks.adb()
    assert (check.status, check.found, devices) == ("optional", "R5CT is unauthorized", ())
    assert check.fix == "allow debugging on the device's screen"
    command(tmp_path, "adb", "echo 'Version 23.1'")
    assert checks.adb()[0].found.endswith("is Version 23.1, 28 or newer is needed; only phones need it")


def test_commands_of_fixes_start_this_kit_and_this_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_command("doctor") == f"{sys.executable} -m model_profiling doctor"
    started = command(tmp_path, "sme2prof", "exit")
    assert own_command("doctor").startswith(sys.executable), "another environment's is first on the PATH"
    monkeypatch.setattr(sys, "executable", str(started.with_name("python")))
    assert own_command("doctor") == "sme2prof doctor"
    monkeypatch.undo()
    asked = install_extra("executorch")
    assert asked.startswith(f"{sys.executable} -m pip install executorch==") and "torch==" in asked
    monkeypatch.setattr("model_profiling.core.hints.DISTRIBUTION", "no-such-distribution")
    assert install_extra("executorch").endswith(f"--editable '{ROOT}[executorch]'")
