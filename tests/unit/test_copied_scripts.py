"""Scripts taken out of the repository: one line says what they need, and with the kit installed they work."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from said import says

from model_profiling.core import process

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "model_profiling"
SCRIPTS = sorted([*KIT.glob("scripts/*.py"), *KIT.glob("tools/*.py"), KIT / "export" / "export_model.py"])
SHELL = [KIT / "scripts" / name for name in ("build_runners.sh", "check_prereqs.sh", "setup_repo.sh")]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_without_the_kit_says_what_it_needs(path: Path, tmp_path: Path) -> None:
    copy = shutil.copy(path, tmp_path)
    done = process.run([sys.executable, "-E", "-S", copy, "--help"], timeout=60, cwd=tmp_path)
    assert done.returncode == 2, done.tail()
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {path.name} ")
    says(line, "Python module model_profiling", "setup_repo.sh")


def test_in_a_clone_without_its_packages_it_names_the_one_it_misses(tmp_path: Path) -> None:
    script = KIT / "scripts" / "analyze_results.py"
    done = process.run([sys.executable, "-E", "-S", script, "--help"], timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    says(done.stderr, "Python module click")


def test_beside_another_kit_of_that_name_it_says_what_it_needs(tmp_path: Path) -> None:
    folder = tmp_path / "model_profiling" / "scripts"
    folder.mkdir(parents=True)
    copy = shutil.copy(KIT / "scripts" / "analyze_results.py", folder)
    done = process.run([sys.executable, "-E", "-S", copy], timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    says(done.stderr, "Python module model_profiling.cli")


def test_with_the_kit_installed_a_copy_works(tmp_path: Path) -> None:
    copy = shutil.copy(KIT / "scripts" / "validate_results.py", tmp_path)
    words = [sys.executable, copy, "--results", tmp_path / "gone"]
    done = process.run(words, timeout=60, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2 and "gone" in done.stderr and "Python module" not in done.stderr


@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_a_shell_script_says_where_it_belongs(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    folder.mkdir(parents=True)
    done = process.run(["bash", shutil.copy(path, folder)], timeout=60, cwd=tmp_path)
    assert done.returncode == 2, done.tail()
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {path.name} ")
    says(line, "clone of the kit")


def test_setup_keeps_the_environment_where_the_python_asked_for_is_none(tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    commands = kit / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "python").symlink_to(sys.executable)
    (kit / "model_profiling").symlink_to(KIT)
    (kit / "requirements").symlink_to(ROOT / "requirements")
    words = ["bash", kit / "model_profiling" / "scripts" / "setup_repo.sh", "--python", tmp_path / "none"]
    done = process.run(words, timeout=60)
    assert done.returncode == 2 and "removing" not in done.stdout, done.tail()
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    says(line, "Python 3.10 to 3.13", "venv", tmp_path / "none")
    assert (commands / "python").exists()
