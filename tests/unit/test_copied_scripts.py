"""Scripts taken out of the repository or started by an old Python, the kit without git, and a checkout of
ExecuTorch beside the installed wheel."""

import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused, says
from stand_ins import command, lay_out_checkout, served

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.hints import wheel_folder
from model_profiling.runner.build import installed_sdk

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "model_profiling"
SCRIPTS = sorted([*KIT.glob("scripts/*.py"), *KIT.glob("tools/*.py"), KIT / "export" / "export_model.py"])
CASES = sorted((ROOT / "test-cases").glob("*.py"))
SHELL = [KIT / "scripts" / name for name in ("build_runners.sh", "check_prereqs.sh", "setup_repo.sh")]


@pytest.mark.parametrize(
    "path",
    [path for path in (*SCRIPTS, *CASES) if path.stem not in ("validate_setup", "conftest", "made_once")],
    ids=lambda path: path.name,
)
def test_a_script_without_the_kits_packages_says_what_it_needs(path: Path, tmp_path: Path) -> None:
    done = process.run([sys.executable, "-E", "-S", path, "--help"], timeout=60, cwd=tmp_path)
    assert done.returncode == 2, done.tail()
    (line,) = done.stderr.splitlines()
    says(line, "Python module", "setup_repo.sh")
    assert path in CASES or (line.startswith(f"error: {path.name} ") and "clone of the kit" in line)


def test_scripts_started_by_the_system_s_python_use_the_clone_s_environment(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "out_*")
    kit = Path(shutil.copytree(KIT, tmp_path / "model_profiling", ignore=ignored))
    folder = tmp_path / ".venv" / "bin"
    used = command(folder, "python", f'echo used >&2; exec {sys.executable} "$@"')
    system = [sys._base_executable, "-E", "-S"]
    for script in ("scripts/run_quick_test.py", "tools/etdump_to_csv.py", "export/export_model.py"):
        done = process.run([*system, kit / script, "--help"], timeout=60, cwd=tmp_path)
        assert done.ok and done.stderr == "used\n" and "usage" in done.stdout.lower(), done.tail()
    asked = [*system, kit / "scripts" / "validate_setup.py", "--prerequisites"]
    assert "used" not in process.run(asked, timeout=60, cwd=tmp_path).stderr, "of the Python that asks"
    used.unlink()
    done = process.run([*system, kit / "scripts" / "run_quick_test.py"], timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    says(done.stderr, "Python module click", "setup_repo.sh", ".venv/bin/python")


def test_the_kit_without_git(tmp_path: Path) -> None:
    """As the archive of a release comes: one folder in a .tar.gz."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    site.mkdir()
    empty.mkdir()
    for name, parts in (("kit", ("scripts", "cli")), ("earlier", ("scripts",))):
        with tarfile.open(site / f"{name}.tar.gz", "w:gz") as archive:
            for part in parts:
                archive.add(KIT / part, f"kit-1/model_profiling/{part}")
    (site / "page.tar.gz").write_text("<html>not found</html>")
    script = shutil.copy(KIT / "scripts" / "download_scripts.sh", empty)

    def download(*words: str) -> process.Completed:
        return process.run(["bash", script, *words], timeout=60, cwd=empty)

    with served(site) as address:
        for words, *said in (
            ((f"{address}/none.tar.gz",), "cannot be downloaded"),
            ((f"{address}/page.tar.gz",), "not a whole .tar.gz"),
            ((f"{address}/earlier.tar.gz",), "not an archive of this kit"),
            ((), "no address", "--help"),
        ):
            done = download(*words)
            assert done.returncode == 2
            says(done.stderr, *said)
        assert [path.name for path in empty.iterdir()] == ["download_scripts.sh"]
        done = download(f"{address}/kit.tar.gz")
        assert done.ok, done.tail()
        assert len([*empty.iterdir()]) == 2
        assert os.access(empty / "executorch_sme2_kit/model_profiling/scripts/setup_repo.sh", os.X_OK)
        done = download(f"{address}/kit.tar.gz")
        assert done.returncode == 2
        says(done.stderr, "executorch_sme2_kit", "--dest")


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


@pytest.mark.parametrize(
    ("as_package", "order"),
    [(False, "model_profiling, executorch"), (True, "model_profiling, executorch"),
     (False, "executorch, model_profiling")],
)  # fmt: skip
def test_the_wheel_is_imported_beside_a_checkout(tmp_path: Path, as_package: bool, order: str) -> None:
    lay_out_checkout(tmp_path, as_package=as_package)
    code = (
        f"import importlib.util, {order}\n"
        "print(*executorch.__path__, importlib.util.find_spec('executorch.exir').origin, sep='\\n')\n"
        "from model_profiling.doctor import checks\n"
        "from model_profiling.models.catalog import upstream_table\n"
        "print(checks.sdk().status, 'mobilebert' in upstream_table())"
    )
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = process.run([sys.executable, "-c", code], timeout=60, cwd=tmp_path, env={"PYTHONPATH": path})
    folder = wheel_folder()
    assert folder is not None and folder.parent.name == "site-packages"
    assert done.stdout.splitlines() == [str(folder), str(folder / "exir" / "__init__.py"), "pass True"], done


def test_an_editable_install_is_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out_checkout(tmp_path)
    info = tmp_path / "executorch-1.5.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: executorch\nVersion: 1.5.1\n")
    (info / "RECORD").write_text("__editable__.executorch-1.5.1.pth,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert wheel_folder() is None
    with refused(SetupError, "wheel", "ExecuTorch"):
        installed_sdk()


@pytest.mark.slow
def test_a_model_is_exported_beside_a_checkout(cli: Callable[..., process.Completed], tmp_path: Path) -> None:
    """Above it is seen that nothing is found in the checkout; this loads all that an export needs."""
    lay_out_checkout(tmp_path)
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = cli("export", "toy_cnn", "--outdir", "out", PYTHONPATH=path)
    assert done.ok and (tmp_path / "out" / "toy_cnn_xnnpack_fp32.pte").is_file(), done.tail()
