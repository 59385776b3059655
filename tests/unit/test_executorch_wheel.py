"""A checkout of ExecuTorch in the working folder is not taken for the installed wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused
from stand_ins import lay_out_checkout

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.hints import wheel_folder
from model_profiling.runner.sdk import installed_sdk

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("as_package", "order"),
    [
        (False, "model_profiling, executorch"),
        (True, "model_profiling, executorch"),
        (False, "executorch, model_profiling"),
    ],
)
def test_the_wheel_is_imported_beside_a_checkout(tmp_path: Path, as_package: bool, order: str) -> None:
    lay_out_checkout(tmp_path, as_package=as_package)
    code = (
        f"import importlib.util, {order}\n"
        "print(*executorch.__path__, importlib.util.find_spec('executorch.exir').origin, sep='\\n')\n"
        "from model_profiling.doctor import checks\n"
        "from model_profiling.models.upstream import upstream_table\n"
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
