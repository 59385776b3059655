"""Model folders: one that fails is named and skipped, folders elsewhere, and registering as other kits do."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused, says

from model_profiling import models
from model_profiling.core import process
from model_profiling.core.errors import InputError
from model_profiling.models import load_model
from model_profiling.models.registry import VARIABLE, XNNPACK_QUANTIZATION, discover, skipped_folders

ROOT = Path(__file__).parents[2]
GOOD = """
from .model import Tiny
from .. import register_model
register_model("{name}", Tiny)
"""
MODEL = """
from ..model_base import EagerModelBase
class Tiny(EagerModelBase):
    def __init__(self, width=4): self.width = width
    def get_eager_model(self): import torch; return torch.nn.Linear(self.width, 2)
    def get_example_inputs(self): import torch; return (torch.ones(1, self.width),)
"""
BROKEN = {
    "no_syntax": ("register_model('asked_for_by_this'\nclass (:\n", "SyntaxError", "__init__.py:"),
    "no_package": ("import no_such_package_at_all\n", "No module named 'no_such_package", "pip install"),
    "raises": (
        "raise ValueError('weights are missing')\n",
        "ValueError: weights are missing",
        "__init__.py:1",
    ),
    "leaves": ("import sys; sys.exit('enough')\n", "SystemExit: enough", "__init__.py:1"),
    "takes_a_name": (
        "from ..registry import register_model\n"
        "register_model('half_done', 'x:Y')\nregister_model('toy_cnn', 'x:Y')\n",
        "'toy_cnn'",
        "model_profiling.models.toy_cnn",
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_models: None) -> Path:
    """A folder of model folders that SME2PROF_MODELS names."""
    del own_models
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def add(place: Path, name: str, init: str = GOOD, model: str = MODEL) -> Path:
    folder = place / name
    folder.mkdir()
    # What is elsewhere is imported only where it registers a model.
    (folder / "__init__.py").write_text(init.replace("{name}", name) + "# register_model\n")
    (folder / "model.py").write_text(model)
    return folder


def test_every_broken_folder_is_named_and_skipped(place: Path) -> None:
    for name, (text, _, _) in BROKEN.items():
        add(place, name, text)
    add(place, "works")
    found = discover()
    assert found["works"].source == "yours" and found["toy_cnn"].source == "kit"
    assert not {"half_done", *BROKEN} & set(found)
    said = {Path(skipped.folder).name: skipped.text for skipped in skipped_folders()}
    assert set(said) == set(BROKEN)
    for name, (_, cause, cure) in BROKEN.items():
        assert cause in said[name] and cure in said[name] and "\n" not in said[name]
    with refused(InputError, "ValueError: weights are missing", "__init__.py:1"):
        load_model("raises")
    with refused(InputError, "SyntaxError"):
        load_model("asked_for_by_this")
    assert load_model("works").model.get_example_inputs()[0].shape == (1, 4)
    assert load_model("toy_cnn").source == "kit"


def test_a_folder_that_was_corrected_is_tried_again(place: Path) -> None:
    folder = add(place, "mended", model="raise RuntimeError('not yet')\n")
    assert "mended" not in discover()
    (folder / "model.py").write_text(MODEL)
    assert "mended" in discover()
    assert skipped_folders() == ()


def test_a_file_that_fails_when_it_is_loaded_is_blamed_on_its_line(place: Path) -> None:
    lazily = "from .. import register_model\nregister_model('late', f'{__name__}.model:Tiny')\n"
    add(place, "late", lazily, "import no_such_package_at_all\n")
    with refused(InputError, "'late'", "no_such_package_at_all", "model.py:1", fix="pip install"):
        load_model("late")


def test_what_registers_no_model_is_not_imported_from_elsewhere(place: Path) -> None:
    (place / "bystander").mkdir()
    (place / "bystander" / "__init__.py").write_text("raise RuntimeError('never run')\n")
    discover()
    assert skipped_folders() == ()


def test_a_folder_of_a_name_the_kit_has_is_said_to_be_hidden(place: Path) -> None:
    add(place, "toy_cnn")
    assert "ToyCNN" in discover()["toy_cnn"].reference
    (hidden,) = skipped_folders()
    assert hidden.folder == str(place / "toy_cnn") and hidden.names == ("toy_cnn",)
    says(hidden.text, "another name")


def test_a_named_place_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with refused(InputError, VARIABLE, tmp_path / "nowhere"):
        discover()


def test_commands_warn_once_and_go_on(sme2prof: Callable[..., process.Completed], place: Path) -> None:
    add(place, "raises", BROKEN["raises"][0])
    listed = sme2prof("models", "--json")
    assert listed.returncode == 0
    assert listed.stderr.count("warning:") == 1
    says(listed.stderr, "raises", "skipped", "ValueError: weights are missing")
    answer = json.loads(listed.stdout)
    assert [skipped["names"] for skipped in answer["skipped"]] == [["raises"]]
    assert "toy_cnn" in {model["name"] for model in answer["models"]}
    asked = sme2prof("export", "raises")
    assert asked.returncode == 2
    assert asked.stderr.count("\n") == 1 and "ValueError: weights are missing" in asked.stderr


def test_options_of_a_model_of_ones_own(place: Path) -> None:
    sized = GOOD.replace("Tiny)", "Tiny, options=[ModelOption('width', 4, 'features')])")
    add(place, "sized", f"from model_profiling.models.options import ModelOption\n{sized}")
    add(place, "no_int8", GOOD.replace("Tiny)", "Tiny, not_supported={'int8': 'it is tiny'})"))
    made = load_model("sized@width=7")
    assert made.name == "sized_width7"
    assert made.model.get_eager_model().in_features == 7
    assert load_model("sized@width=4").name == "sized"
    assert discover()["no_int8"].dtypes == ("fp32", "fp16")
    with refused(InputError, "no_int8", "int8", "it is tiny", fix="--dtype fp32 or fp16"):
        discover()["no_int8"].check_dtype("int8")


def test_what_executorchs_scripts_are_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from executorch.examples import models as theirs
    from executorch.examples import xnnpack
    from executorch.examples.xnnpack import QuantType

    monkeypatch.setattr(theirs, "MODEL_NAME_TO_MODEL", dict(theirs.MODEL_NAME_TO_MODEL))
    monkeypatch.setattr(xnnpack, "MODEL_NAME_TO_OPTIONS", dict(xnnpack.MODEL_NAME_TO_OPTIONS))
    assert [kind.name for kind in QuantType] == list(XNNPACK_QUANTIZATION)
    told = "Tiny, xnnpack_quantization='DYNAMIC_PER_CHANNEL', xnnpack_delegation=False)"
    add(place, "told", GOOD.replace("Tiny)", told))
    add(place, "fails_late", "from .. import register_model\nregister_model('fails_late', 'nowhere:Y')\n")
    added = models.patch_executorch_model_registry()
    assert "told" in added and "fails_late" not in added
    assert xnnpack.MODEL_NAME_TO_OPTIONS["told"].quantization is QuantType.DYNAMIC_PER_CHANNEL
    assert not xnnpack.MODEL_NAME_TO_OPTIONS["told"].delegation
    said = list(discover()["told"].remarks("int8", "xnnpack"))
    assert len(said) == 2 and 'xnnpack_quantization="DYNAMIC_PER_CHANNEL"' in said[0]
    assert list(discover()["toy_cnn"].remarks("int8", "xnnpack")) == []
    with refused(InputError, "xnnpack_quantization", "'FAST'"):
        models.register_model("fast", "x:Y", xnnpack_quantization="FAST")


def test_registering_at_the_end_of_the_packages_own_file(tmp_path: Path) -> None:
    """Also twice: in the folder and there. What fails there is one line that names the line."""
    kit = tmp_path / "model_profiling"
    shutil.copytree(ROOT / "model_profiling", kit, ignore=shutil.ignore_patterns("__pycache__"))
    folder = add(kit / "models", "your_model")
    registrations = kit / "models" / "__init__.py"
    registrations.write_text(
        f"{registrations.read_text()}\nfrom . import your_model\nfrom .your_model.model import Tiny\n"
        "register_model('your_model', Tiny)\nregister_model('second_name', Tiny)\n"
    )

    def sme2prof(*words: str) -> process.Completed:
        command = [sys.executable, "-m", "model_profiling", *words]
        return process.run(command, timeout=60, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})

    listed = sme2prof("models")
    assert listed.stderr == ""
    assert {line.split()[0] for line in listed.stdout.splitlines()} >= {"your_model", "second_name"}
    (folder / "model.py").write_text("import no_such_package_at_all\n")
    failed = sme2prof("models")
    line = len(registrations.read_text().splitlines()) - 3
    assert failed.returncode == 2
    says(failed.stderr, "models/__init__.py", "ModuleNotFoundError", "no_such_package_at_all", f"line {line}")
    assert failed.stderr.count("\n") == 1
