"""`sme2prof onboard`: the folder it makes works as it stands, and `--check` says what is left to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from said import says

from model_profiling.core import process
from model_profiling.models import registry
from model_profiling.workflow import onboard

Run = Callable[..., process.Completed]
REFUSED = dict.fromkeys(("fp16", "int8"), "not asked for")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_models: None) -> Path:
    """An empty working folder of somebody without a clone."""
    del own_models
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    monkeypatch.setattr(
        onboard, "SHORT", onboard.SHORT.model_copy(update={"runs": 1, "rounds": 1, "budget_s": 0.2})
    )
    return tmp_path


def test_a_folder_is_made_whole_and_says_what_to_do(here: Path, sme2prof: Run) -> None:
    made = sme2prof("onboard", "my_net")
    assert made.returncode == 0 and made.stderr == ""
    assert f"export SME2PROF_MODELS={here}" in made.stdout and "onboard my_net --check" in made.stdout
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


def test_nothing_here_is_imported_unless_it_is_named(here: Path, sme2prof: Run) -> None:
    (here / "my_net").mkdir()
    (here / "my_net" / "__init__.py").write_text("raise RuntimeError('register_model was run')\n")
    unnamed = sme2prof("onboard", "my_net", "--check")
    assert unnamed.returncode == 2
    says(unnamed.stderr, "--dir .", "export SME2PROF_MODELS=$PWD")
    named = sme2prof("onboard", "my_net", "--check", "--dir", ".")
    assert named.returncode == 2 and "register_model was run" in named.stderr
    (here / "my_net" / "__init__.py").write_text("NOTHING = 1\n")
    silent = sme2prof("onboard", "my_net", "--check", "--dir", ".")
    assert silent.returncode == 2 and "does not register a model 'my_net'" in silent.stderr
    absent = sme2prof("onboard", "absent", "--check", "--dir", ".")
    assert absent.returncode == 2 and "folder 'absent'" in absent.stderr


def test_a_folder_is_ready_once_it_is_filled_in_and_its_own_test_passes(here: Path, sme2prof: Run) -> None:
    sme2prof("onboard", "my_net", "--json")
    folder = here / "my_net"
    init, test = folder / "__init__.py", folder / "test_my_net.py"
    init.write_text(init.read_text().replace('MyNet")', f'MyNet", not_supported={REFUSED})'))
    check = ("onboard", "my_net", "--check", "--dir", ".", "--json")
    checked = sme2prof(*check)
    answer = json.loads(checked.stdout)
    assert checked.returncode == 1 and not answer["ok"]
    names = ["replaced", "own test", "fp32 export", "fp32 outputs", "fp32 run"]
    assert [each["name"] for each in answer["checks"]] == names
    assert [each["status"] for each in answer["checks"]] == ["fail", *["pass"] * 4]
    (fp32,) = answer["dtypes"]
    assert fp32["median_ms"] > 0 and fp32["delegated"] == fp32["operators"] and Path(fp32["report"]).is_file()
    says(answer["checks"][0]["found"], "model.py:13", "model.py:17", "test_my_net.py:11")

    for file in folder.glob("*.py"):
        file.write_text(file.read_text().replace("Replace:", "This is"))
    test.write_text(test.read_text().replace("(1, 10)", "(1, 11)"))
    wrong = sme2prof(*check[:-1])
    assert wrong.returncode == 1 and wrong.stdout.startswith(
        "FAIL  own test      FAILED my_net/test_my_net.py"
    )
    says(wrong.stdout, "(1, 11)", "not ready: own test")
    test.write_text(test.read_text().replace("(1, 11)", "(1, 10)"))
    ready = sme2prof(*check[:-1])
    assert ready.returncode == 0 and "\nready: my_net exports and runs in fp32\n" in ready.stdout
    assert sorted(each.name for each in folder.iterdir() if each.name != "__pycache__") == sorted(
        ["__init__.py", "model.py", "test_my_net.py"]
    )


def test_a_model_that_does_not_export_is_the_answer_no(here: Path, sme2prof: Run) -> None:
    """Said once for all dtypes, with the line."""
    (here / "branching.py").write_text(
        "import torch\n"
        "class Branching(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1 if x.sum() > 0 else x - 1\n"
        "def make(): return Branching(), (torch.ones(2),)\n"
    )
    checked = sme2prof("onboard", "branching.py:make", "--check")
    assert checked.returncode == 1
    says(checked.stdout, "FAIL  fp32/fp16/int8 export", "branching.py:4")
    says(checked.stdout.splitlines()[-1], "not ready", "fp32/fp16/int8 export")
