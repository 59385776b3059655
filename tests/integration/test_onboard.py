"""`sme2prof onboard`: the folder it makes works as it stands."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import says

from model_profiling.core import process
from model_profiling.models import registry

Run = Callable[..., process.Completed]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_models: None) -> Path:
    """An empty working folder of somebody without a clone."""
    del own_models
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    return tmp_path


def test_a_folder_is_made_whole_and_says_what_to_do(here: Path, sme2prof: Run) -> None:
    made = sme2prof("onboard", "my_net")
    assert made.returncode == 0 and made.stderr == ""
    assert f"export SME2PROF_MODELS={here}" in made.stdout and "profile my_net --dtype all" in made.stdout
    folder = here / "my_net"
    assert sorted(file.name for file in folder.iterdir()) == ["__init__.py", "model.py", "test_my_net.py"]
    texts = "".join(file.read_text() for file in folder.iterdir())
    assert "new_model" not in texts and "NewModel" not in texts and "class MyNet(" in texts
    assert len((folder / "model.py").read_text().splitlines()) <= 20
    assert sorted(path.name for path in here.iterdir()) == ["my_net"]

    again = sme2prof("onboard", "my_net")
    assert again.returncode == 2 and "already exists" in again.stderr
    elsewhere = json.loads(sme2prof("onboard", "other", "--dir", here / "mine", "--json").stdout)
    assert elsewhere["folder"] == str(here / "mine" / "other") and not elsewhere["in_kit"]
    assert f"export SME2PROF_MODELS={here / 'mine'}" in elsewhere["next"]


@pytest.mark.parametrize(
    "name, error",
    [
        ("3d", "not a valid model name"),
        ("my-net", "not a valid model name"),
        ("class", "not a valid model name"),
        ("../up", "not a valid model name"),
        ("toy_cnn", "'toy_cnn' is already used"),
        ("mv2", "a model of ExecuTorch"),
        ("registry", "registry.py"),
        ("json", "Python package"),
    ],
)
def test_names_that_cannot_be_had(name: str, error: str, here: Path, sme2prof: Run) -> None:
    refused = sme2prof("onboard", name)
    assert refused.returncode == 2 and error in refused.stderr and refused.stderr.count("\n") == 1
    assert list(here.iterdir()) == []


def test_in_a_clone_it_is_made_where_the_kit_looks(here: Path, sme2prof, monkeypatch) -> None:
    """With a copy of the layout: nothing is written into this repository."""
    kit = here / "model_profiling" / "models"
    kit.mkdir(parents=True)
    (here / "pyproject.toml").touch()
    monkeypatch.setattr(registry, "KIT", kit)
    made = json.loads(sme2prof("onboard", "my_net", "--json").stdout)
    assert made["in_kit"] and made["folder"] == str(kit / "my_net")
    assert not any("SME2PROF_MODELS" in command for command in made["next"])


def test_nothing_here_is_imported_unless_it_is_named(here: Path, sme2prof: Run, monkeypatch) -> None:
    (here / "my_net").mkdir()
    (here / "my_net" / "__init__.py").write_text("raise RuntimeError('register_model was run')\n")
    unnamed = sme2prof("export", "my_net")
    assert unnamed.returncode == 2
    says(unnamed.stderr, "export SME2PROF_MODELS=$PWD")
    monkeypatch.setenv(registry.VARIABLE, str(here))
    named = sme2prof("export", "my_net")
    assert named.returncode == 2 and "register_model was run" in named.stderr


def test_the_folder_exports_and_its_own_test_passes(here: Path, sme2prof: Run, monkeypatch) -> None:
    sme2prof("onboard", "my_net", "--json")
    monkeypatch.setenv(registry.VARIABLE, str(here))
    exported = json.loads(sme2prof("export", "my_net", "--json").stdout)
    assert exported["coverage"]["delegated"] == exported["coverage"]["operators"] > 0
    own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "my_net/test_my_net.py"]
    tested = process.run(own, timeout=300)
    assert tested.ok and "1 passed" in tested.stdout
