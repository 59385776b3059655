"""The doctor: what it finds missing, that it says how to mend it, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling import process
from model_profiling.check import Check
from model_profiling.doctor import Diagnosis, checks
from model_profiling.doctor.examination import _emulator

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., process.Completed]


def test_this_machine_is_ready_and_says_what_it_lacks(cli: Run) -> None:
    done = cli("doctor", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert facts["ok"] is True
    by_name = {check["name"]: check for check in facts["checks"]}
    assert by_name["executorch"]["status"] == by_name["C++ compiler"]["status"] == "pass"
    assert set(facts["cpu_features"]) >= {"sme2", "sme", "sve2", "i8mm", "dotprod", "fp16"}
    assert {target["name"] for target in facts["targets"]} == {"host", "emulated", "android"}
    assert all(check["fix"] for check in facts["checks"] if check["status"] != "pass")


def test_without_a_compiler_the_answer_is_no(cli: Run) -> None:
    done = cli("doctor", CXX="no-such-compiler")
    assert done.returncode == 1
    assert "FAIL  C++ compiler" in done.stdout
    assert "not ready: C++ compiler" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")
def test_what_emulation_lacks_on_a_machine_that_is_not_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiler and wheel are fetched, but not by looking."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    check, _ = _emulator()
    assert check.status == "optional" and "the first build gets one from the ziglang wheel, or" in check.fix
    assert check.found == "no C++ compiler for aarch64 Linux is at hand (none is installed)"
    compiler = tmp_path / "aarch64-linux-gnu-g++"
    compiler.write_text("#!/bin/sh\necho a cross compiler\n")
    compiler.chmod(0o755)
    check, _ = _emulator()
    assert (
        "(a cross compiler cannot build a C++17 program for aarch64 Linux: what it made is not one)"
        in check.found
    )
    assert not (tmp_path / "cache").exists()


def test_a_compiler_that_cannot_link_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken-cxx"
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'broken 1.0' && exit 0\n"
        "echo 'cannot find -lstdc++' >&2; exit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    check = checks.compiler()
    assert check.status == "fail"
    assert "cannot find -lstdc++" in check.found


def test_prerequisites_need_nothing_but_python() -> None:
    """It runs before anything is installed; an interpreter without site-packages stands for that."""
    done = process.run(
        [
            sys.executable,
            "-S",
            "-I",
            ROOT / "model_profiling/scripts/validate_setup.py",
            "--prerequisites",
            "--json",
        ],
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert {check["name"] for check in json.loads(done.stdout)["checks"]} >= {
        "Python",
        "venv",
        "C++ compiler",
        "git",
    }


def test_check_prereqs_refuses_an_old_python(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    script = ROOT / "model_profiling/scripts/check_prereqs.sh"
    done = process.run(["bash", script, "--python", old], timeout=60)
    assert done.returncode == 2
    assert "no Python 3.10 to 3.13" in done.stderr
    assert process.run(["bash", script], timeout=100).returncode == 0


def test_packages_that_do_not_fit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "2.0.0" if name == "torch" else real(name)
    )
    torch = next(check for check in checks.packages() if check.name == "torch")
    assert (torch.status, torch.fix) == ("fail", "pip install 'torch==2.13.0'")
    assert "2.0.0 does not fit ==2.13.0" in torch.found


def test_what_executorch_itself_needs_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    real = importlib.metadata.version

    def without_torchao(name: str) -> str:
        if name == "torchao":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    assert any(check.name == "for ExecuTorch" and check.status == "pass" for check in checks.packages())
    monkeypatch.setattr(importlib.metadata, "version", without_torchao)
    torchao = next(check for check in checks.packages() if check.name == "torchao")
    assert (torchao.status, torchao.found) == ("fail", "not installed")


def test_the_ndk_is_recognised_by_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_NDK", str(tmp_path))
    assert checks.ndk().status == "optional"
    (tmp_path / "source.properties").write_text("Pkg.Desc = Android NDK\nPkg.Revision = 28.0.13004108\n")
    assert checks.ndk().found.startswith("28.0.13004108 at ")


def test_an_unauthorised_phone_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adb = tmp_path / "adb"
    adb.write_text("#!/bin/sh\nprintf 'List of devices attached\\nR5CT\\tunauthorized\\nemu\\tdevice\\n'\n")
    adb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    check, ready = checks.adb()
    assert ready == ("emu",)
    assert "R5CT is unauthorized" in check.found


def test_text_puts_the_fix_under_what_failed() -> None:
    checks = (Check("thing", "fail", "gone", "bring it back"),)
    text = Diagnosis(checks, {"sme2": False}, ()).as_text()
    lines = text.splitlines()
    assert lines[0].startswith("FAIL  thing")
    assert lines[1].strip() == "fix: bring it back"
    assert lines[-1] == "not ready: thing"


def test_too_little_disk_space_fails(tiny_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny_disk)
    assert checks.disk_space().status == "fail"


def test_cmake_is_judged_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, status in (("3.25.1", "optional"), ("4.0.3", "pass")):
        fake = tmp_path / "cmake"
        fake.write_text(f"#!/bin/sh\necho 'cmake version {version}'\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert shutil.which("cmake") == str(fake)
        assert checks.cmake().status == status
