"""The registry, the zoo, and models named by reference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused

from model_profiling.core import process
from model_profiling.core.errors import InputError
from model_profiling.models import EagerModelBase, list_models, load_model, register_model
from model_profiling.models.registry import discover

UNSEEN = Path(__file__).parents[1] / "models" / "unseen.py"


class Small(EagerModelBase):
    def get_eager_model(self) -> object:
        raise NotImplementedError

    def get_example_inputs(self) -> tuple[object, ...]:
        return ()


def test_a_duplicate_name_is_refused_and_says_who_has_it() -> None:
    discover()
    with refused(InputError, "'toy_cnn'", "model_profiling.models.toy_cnn.model:ToyCNN"):
        register_model("toy_cnn", Small)


@pytest.mark.parametrize("name", ["", "3d", "my-model", "a/b"])
def test_a_name_that_cannot_be_part_of_a_file_name_is_refused(name: str) -> None:
    with refused(InputError, repr(name)):
        register_model(name, Small)


def test_an_unknown_dtype_is_refused_at_registration() -> None:
    with refused(InputError, "fp8"):
        register_model("with_fp8", Small, dtypes=["fp8"])


def test_adding_a_model_touches_only_its_own_folder(tmp_path, cli):
    folder = tmp_path / "zoo" / "my_model"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(
        "from model_profiling.models import register_model\n"
        "register_model('my_model', f'{__name__}.model:MyModel', inputs=['1x4 float32'])\n"
    )
    listed = json.loads(cli("models", "--json", SME2PROF_MODELS=str(tmp_path / "zoo")).stdout)["models"]
    assert {model["name"]: model["inputs"] for model in listed}["my_model"] == ["1x4 float32"]


@pytest.fixture
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were not installed, whether it is or not."""
    for name in [*sys.modules, "transformers"]:
        if name.partition(".")[0] == "transformers":
            monkeypatch.setitem(sys.modules, name, None)
        elif "mobilebert" in name:
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("without_transformers")
def test_listing_shows_ours_and_executorchs_and_what_each_lacks() -> None:
    entries = {entry.name: entry for entry in list_models()}
    assert entries["toy_cnn"].source == "kit"
    assert entries["mobilenet_v3_small"].inputs == ("1x3x224x224 float32",)
    assert entries["mv2"].source == "executorch"
    assert entries["conv1d"].inputs == ("1x3x10 float32",)
    assert entries["conv1d"].missing == ()
    assert "transformers" in entries["mobilebert"].missing


def test_the_list_shows_how_options_are_written(cli: Callable[..., process.Completed]) -> None:
    heads, *rows = cli("models").stdout.splitlines()
    place = heads.index("OPTIONS")
    shown = {row.split()[0]: row[place:].split("  ")[0] for row in rows}
    assert shown["edgetam_image_encoder"] == "@size=1024,checkpoint=FILE"
    assert shown["decoder_lm"] == "@tokens=1,context=256,layers=6"
    assert shown["toy_cnn"] == ""


def test_listing_loads_no_torch(cli: Callable[..., process.Completed]) -> None:
    listed = cli("models", "--json")
    assert {model["name"] for model in json.loads(listed.stdout)["models"]} >= {"toy_cnn", "mv3", "lstm"}
    code = (
        "import sys; from model_profiling.models import list_models; list_models()\n"
        "print('torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["toy_cnn", "mobilenet_v3_small"])
def test_declared_inputs_are_the_real_ones(name: str) -> None:
    from model_profiling.export.exporter import describe_tensor

    model = load_model(name).model
    assert discover()[name].inputs == tuple(describe_tensor(t) for t in model.get_example_inputs())


def test_toy_cnn_is_the_agreed_network() -> None:
    from torch import nn

    module = load_model("toy_cnn").model.get_eager_model()
    convolutions = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size, c.stride) for c in convolutions] == [
        (32, (3, 3), (2, 2)),
        (64, (3, 3), (2, 2)),
        (128, (3, 3), (2, 2)),
    ]
    assert [m.out_features for m in module.modules() if isinstance(m, nn.Linear)] == [1000]


def test_mobilenet_v3_small_has_the_published_size_and_a_signal_to_compare() -> None:
    import torch

    torch.manual_seed(0)
    model = load_model("mobilenet_v3_small").model
    module = model.get_eager_model().eval()
    assert sum(p.numel() for p in module.parameters()) == 2_542_856
    assert module(*model.get_example_inputs()).std() > 0.05


def test_mobilenet_v3_small_equals_torchvisions_under_the_same_weights() -> None:
    try:
        from torchvision.models import mobilenet_v3_small
    except (ImportError, RuntimeError) as problem:
        pytest.skip(f"torchvision does not import here, and no build of it fits this torch: {problem}")
    import torch

    ours = load_model("mobilenet_v3_small").model.get_eager_model().eval()
    theirs = mobilenet_v3_small().eval()
    values = zip(theirs.state_dict(), ours.state_dict().values(), strict=True)
    theirs.load_state_dict(dict(values))
    image = torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(ours(image), theirs(image))


def test_executorchs_own_scripts_see_our_models() -> None:
    import torch
    from executorch.examples.models import MODEL_NAME_TO_MODEL
    from executorch.examples.models.model_factory import EagerModelFactory

    from model_profiling.models.upstream import add_to_executorch

    assert "toy_cnn" in add_to_executorch()
    module, inputs, _, _ = EagerModelFactory.create_model(*MODEL_NAME_TO_MODEL["toy_cnn"])
    assert isinstance(module, torch.nn.Module)
    assert inputs[0].shape == (1, 3, 224, 224)
    assert add_to_executorch() == ()
    assert load_model("toy_cnn").source == "kit"


@pytest.mark.slow
def test_an_executorch_example_loads_behind_our_interface() -> None:
    model = load_model("linear").model
    assert model.get_eager_model()(*model.get_example_inputs()).shape == (3, 3)


@pytest.mark.usefixtures("without_transformers")
def test_an_executorch_example_that_lacks_a_package_names_it() -> None:
    with refused(InputError, "'mobilebert'", "'transformers'", fix="pip install"):
        load_model("mobilebert")


@pytest.mark.parametrize(
    "typed, meant", [("toy_cn", "toy_cnn"), ("mobilenet_v3", "mobilenet_v3_small"), ("LSTM", "lstm")]
)
def test_an_unknown_model_suggests_the_nearest(typed: str, meant: str) -> None:
    with refused(InputError, f"'{typed}'", fix=f"'{meant}'"):
        load_model(typed)


def test_a_factory_is_named_by_file_or_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    by_file = load_model(f"{UNSEEN}:linear")
    assert by_file.name == "unseen_linear"
    monkeypatch.chdir(UNSEEN.parent)
    assert load_model("unseen:unet").model.get_example_inputs()[0].shape == (1, 3, 32, 32)
    assert load_model(f"{UNSEEN}:keyword").model.get_example_kwarg_inputs() is not None


@pytest.mark.parametrize(
    "reference, facts",
    [
        ("nowhere.py:make", ("nowhere.py", "path/file.py:factory")),
        (f"{UNSEEN}:absent", ("'absent'", "encoder")),
        (f"{UNSEEN}", (UNSEEN, "factory")),
        (f"{UNSEEN}:", (UNSEEN, "factory")),
        ("no_such_package.models:make", ("no_such_package.models", "ModuleNotFoundError")),
        (f"{UNSEEN}:raises", ("ValueError: the weights are not here", "unseen.py", "in raises")),
        (f"{UNSEEN}:returns_a_number", ("int", "(module, example_inputs)")),
    ],
)
def test_a_bad_reference_is_one_clear_line(reference: str, facts: tuple[object, ...]) -> None:
    with refused(InputError, *facts):
        load_model(reference)


def test_a_file_that_does_not_parse_is_blamed_on_its_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ndef make(:\n")
    with refused(InputError, "SyntaxError", "broken.py:2"):
        load_model(f"{broken}:make")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "torch"])
def test_a_file_named_like_a_library_does_not_stand_in_its_way(name: str, tmp_path: Path) -> None:
    """In a process of its own: here the libraries are loaded already."""
    (tmp_path / f"{name}.py").write_text(
        "from torch import nn, ones\ndef make(): return nn.ReLU(), ones(2)\n"
    )
    code = (
        "from model_profiling.models import load_model\n"
        f"model = load_model('{name}.py:make').model\n"
        f"import {name}; print(type(model.get_eager_model()).__name__, {name}.__file__)"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert said.stdout.startswith("ReLU "), said.stderr
    assert str(tmp_path) not in said.stdout


def test_a_file_in_a_package_may_import_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "kitpkg" / "sub"
    folder.mkdir(parents=True)
    (tmp_path / "kitpkg" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "layers.py").write_text("WIDTH = 7\n")
    (folder / "net.py").write_text(
        "from torch import nn, ones\nfrom .layers import WIDTH\n"
        "def make(): return nn.Linear(WIDTH, 2), (ones(1, WIDTH),)\n"
    )
    named = load_model(f"{folder / 'net.py'}:make")
    assert named.name == "net_make"
    assert named.model.get_eager_model().in_features == 7


def test_two_files_of_one_name_are_two_models(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "same_stem.py").write_text(
            f"from torch import nn, ones\ndef make(): return nn.Linear({number}, 1), (ones(1, {number}),)\n"
        )
    made = [load_model(f"{tmp_path / str(n) / 'same_stem.py'}:make").model for n in (1, 2)]
    assert [model.get_eager_model().in_features for model in made] == [1, 2]
