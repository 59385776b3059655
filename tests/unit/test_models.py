"""The registry, the zoo, models named by reference, and model folders."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused, says

from model_profiling.core import process
from model_profiling.core.errors import InputError
from model_profiling.models import EagerModelBase, list_models, load_model, register_model, registry
from model_profiling.models.registry import VARIABLE, discover

UNSEEN = Path(__file__).parents[1] / "models" / "unseen.py"


class Small(EagerModelBase):
    def get_eager_model(self) -> object:
        raise NotImplementedError

    def get_example_inputs(self) -> tuple[object, ...]:
        return ()


@pytest.mark.parametrize("name", ["", "3d", "my-model", "a/b"])
def test_a_name_that_cannot_be_part_of_a_file_name_is_refused(name: str) -> None:
    with refused(InputError, repr(name)):
        register_model(name, Small)
    with refused(InputError, "fp8"):
        register_model("with_fp8", Small, not_supported={"fp8": "too few bits"})


def test_a_registered_class_needs_only_the_methods_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `file.py:factory` does; it ended in an AttributeError, which asked the user to report it."""

    class Bare:
        get_eager_model, get_example_inputs = Small.get_eager_model, Small.get_example_inputs

    discover()
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    register_model("bare", Bare)
    assert load_model("bare").model.get_example_kwarg_inputs() is None


@pytest.fixture
def without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package were not installed, whether it is or not."""
    for name in [*sys.modules, "transformers"]:
        if name.partition(".")[0] == "transformers":
            monkeypatch.setitem(sys.modules, name, None)
        elif "mobilebert" in name:
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("near", "meant"),
    [
        ("EdgeTAM", "edgetam_image_encoder"),
        ("EdgeTAM@size=512", "edgetam_image_encoder"),
        ("MobileNet-V3", "mobilenet_v3_small"),
        ("ToyCNN", "toy_cnn"),
        ("tinyllma", "tiny_llama"),
    ],
)
def test_a_near_name_is_suggested(near: str, meant: str) -> None:
    with refused(InputError, near.partition("@")[0], fix=f"did you mean '{meant}'?"):
        load_model(near)


def test_weights_that_cannot_be_downloaded_are_said_with_the_cure(tmp_path: Path) -> None:
    from model_profiling.export.tracing import ask

    source = tmp_path / "far.py"
    call = "    urlopen('http://127.0.0.1:9/weights.pth')\n"
    source.write_text(f"from urllib.request import urlopen\n\ndef make():\n{call}")
    cure = re.compile("internet.*copy the .pte here")
    with pytest.raises(InputError, match="weights cannot be downloaded") as failed:
        load_model(f"{source}:make")
    assert cure.search(failed.value.fix) and "far.py:4" in failed.value.problem
    from urllib.request import urlopen

    with pytest.raises(InputError, match="'far' failed: its weights cannot be downloaded") as failed:
        ask("far", "get_eager_model", lambda: urlopen("http://127.0.0.1:9/weights.pth"))
    assert cure.search(failed.value.fix)


def test_lists_load_no_torch_and_show_how_options_are_written(cli: Callable[..., process.Completed]) -> None:
    listed = cli("models", "--json")
    assert {model["name"] for model in json.loads(listed.stdout)["models"]} >= {"toy_cnn", "mv3", "lstm"}
    code = "import sys, model_profiling.models as m; m.list_models(); print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
    entries = {entry.name: entry for entry in list_models()}
    assert (entries["toy_cnn"].source, entries["mv2"].source) == ("kit", "executorch")
    assert entries["mobilenet_v3_small"].inputs == ("1x3x224x224 float32",)
    listed = cli("models").stdout
    assert max(map(len, listed.splitlines())) <= 100
    shown = dict(re.findall(r"^  (\w+) +((?:.*\n)(?:    .*\n)*)", listed, re.MULTILINE))
    assert "options @size=1024,checkpoint=FILE" in shown["edgetam_image_encoder"]
    assert "@layers=2,prompt=64,context=128" in shown["tiny_llama"]
    assert "options" not in shown["toy_cnn"]
    ours, theirs = listed.index("The kit's own:"), listed.index("ExecuTorch's examples:")
    assert ours < listed.index("  toy_cnn ") < theirs


@pytest.mark.parametrize("name", ["toy_cnn", "mobilenet_v3_small"])
def test_declared_inputs_are_the_real_ones(name: str) -> None:
    from model_profiling.export.exporter import describe_tensor

    model = load_model(name).model
    assert discover()[name].inputs == tuple(describe_tensor(t) for t in model.get_example_inputs())


def test_toy_cnn_and_mobilenet_v3_small_are_the_agreed_networks() -> None:
    from torch import nn

    module = load_model("toy_cnn").model.get_eager_model()
    convolutions = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    found = [(c.out_channels, c.kernel_size, c.stride) for c in convolutions]
    assert found == [(channels, (3, 3), (2, 2)) for channels in (32, 64, 128)]
    assert [m.out_features for m in module.modules() if isinstance(m, nn.Linear)] == [1000]
    import torch

    torch.manual_seed(0)
    model = load_model("mobilenet_v3_small").model
    module = model.get_eager_model().eval()
    assert sum(p.numel() for p in module.parameters()) == 2_542_856
    assert module(*model.get_example_inputs()).std() > 0.05


@pytest.mark.usefixtures("without_transformers")
def test_an_executorch_example_that_lacks_a_package_names_it() -> None:
    with refused(InputError, "'mobilebert'", "transformers", fix="pip install transformers"):
        load_model("mobilebert")


def test_a_factory_is_named_by_file_or_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    by_file = load_model(f"{UNSEEN}:linear")
    assert by_file.name == "unseen_linear"
    monkeypatch.chdir(UNSEEN.parent)
    assert load_model("unseen:unet").model.get_example_inputs()[0].shape == (1, 3, 32, 32)
    assert load_model(f"{UNSEEN}:keyword").model.get_example_kwarg_inputs() is not None


OTHERS = ("model.onnx", "net.tflite", "weights.pt", "a/model.safetensors")


@pytest.mark.parametrize(
    "reference, facts",
    [
        ("nowhere.py:make", ("nowhere.py", "path/file.py:factory")),
        (f"{UNSEEN}:absent", ("'absent'", "linear")),
        (f"{UNSEEN}", (UNSEEN, "factory")),
        (f"{UNSEEN}:", (UNSEEN, "factory")),
        ("no_such_package.models:make", ("no_such_package.models", "ModuleNotFoundError")),
        (f"{UNSEEN}:raises", ("ValueError: the weights are not here", "unseen.py", "in raises")),
        (f"{UNSEEN}:returns_a_number", ("int", "(module, example_inputs)")),
        *((name, (f"{name} is neither a program (.pte) nor", "file.py:factory")) for name in OTHERS),
    ],
)
def test_a_bad_reference_is_one_clear_line(reference: str, facts: tuple[object, ...]) -> None:
    with refused(InputError, *facts):
        load_model(reference)


MISTAKES = """
import torch
class Without(torch.nn.Module):
    def froward(self, x): return x
def package():
    import no_such_package
def checkpoint(): return torch.load("weights/best.pt", weights_only=True)
def gpu(): return torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2),)
def wants(size): return torch.nn.Linear(size, size), (torch.ones(1, size),)
def swapped(): return (torch.ones(1, 2),), torch.nn.Linear(2, 2)
def without(): return Without(), (torch.ones(2),)
def other(): raise RuntimeError("no luck")
"""


@pytest.mark.parametrize(
    "factory, problem, fix",
    [
        ("package", "No module named 'no_such_package'", "pip install no_such_package"),
        ("checkpoint", "weights/best.pt", "put the file there, or correct its path"),
        ("gpu", "CUDA", "stay on the CPU: no .cuda()"),
        ("wants", "missing a required argument: 'size'", "when called without arguments"),
        ("swapped", "returned a tuple of tuple, Linear", "the module first"),
        ("without", "Without of 'x' has no forward()", "define forward()"),
        ("other", "no luck at mistakes.py", "correct that line"),
    ],
)
def test_a_model_that_cannot_be_made_gets_the_cure_of_its_cause(factory, problem, fix, tmp_path) -> None:
    from model_profiling.export.tracing import eager_model

    source = tmp_path / "mistakes.py"
    source.write_text(MISTAKES)
    with refused(InputError, problem, fix=fix):
        eager_model("x", load_model(f"{source}:{factory}").model)
    source.write_text("x = 1\ndef make(:\n")
    with refused(InputError, "SyntaxError", "mistakes.py:2"):
        load_model(f"{source}:make")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "torch"])
def test_a_file_named_like_a_library_does_not_stand_in_its_way(name: str, tmp_path: Path) -> None:
    """In a process of its own: here the libraries are loaded already."""
    text = "from torch import nn, ones\ndef make(): return nn.ReLU(), ones(2)\n"
    (tmp_path / f"{name}.py").write_text(text)
    code = (
        "from model_profiling.models import load_model\n"
        f"model = load_model('{name}.py:make').model\n"
        f"import {name}; print(type(model.get_eager_model()).__name__, {name}.__file__)"
    )
    words = [sys.executable, "-I", "-c", code]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
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
    assert named.name == "net_make" and named.model.get_eager_model().in_features == 7
    (tmp_path / "net.py").write_text("from torch import nn\ndef make(): return nn.Linear(3, 1), ()\n")
    assert load_model(f"{tmp_path / 'net.py'}:make").model.get_eager_model().in_features == 3, "another file"


ROOT = Path(__file__).parents[2]
GOOD = "from .model import Tiny\nfrom .. import register_model\nregister_model('{name}', Tiny)\n"
MODEL = """
from ..model_base import EagerModelBase
class Tiny(EagerModelBase):
    def __init__(self, width=4): self.width = width
    def get_eager_model(self): import torch; return torch.nn.Linear(self.width, 2)
    def get_example_inputs(self): import torch; return (torch.ones(1, self.width),)
"""
BROKEN = {
    "no_syntax": ("register_model('no_syntax'\nclass (:\n", "SyntaxError", "__init__.py:"),
    "no_package": ("import no_such_package_at_all\n", "No module named 'no_such_package", "pip install"),
    "raises": ("raise ValueError('not here')\n", "ValueError: not here", "__init__.py:1"),
    "leaves": ("import sys; sys.exit('enough')\n", "SystemExit: enough", "__init__.py:1"),
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


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_named_with_its_cause(name: str, place: Path) -> None:
    text, cause, cure = BROKEN[name]
    broken = add(place, name, text)
    with refused(InputError, broken) as caught:
        discover()
    said = str(caught.value)
    assert cause in said and cure in said and "\n" not in said
    (broken / "__init__.py").write_text(GOOD.replace("{name}", "works"))
    found = discover()
    assert found["works"].source == "yours" and found["toy_cnn"].source == "kit"
    assert load_model("works").model.get_example_inputs()[0].shape == (1, 4)
    assert load_model("toy_cnn").source == "kit"


def test_a_folder_is_tried_again_not_imported_or_hidden_and_blamed_on_its_line(place: Path) -> None:
    folder = add(place, "mended", model="raise RuntimeError('not yet')\n")
    with refused(InputError, folder, "RuntimeError: not yet"):
        discover()
    (folder / "model.py").write_text(MODEL)
    assert "mended" in discover()
    (place / "bystander").mkdir()
    (place / "bystander" / "__init__.py").write_text("raise RuntimeError('never run')\n")
    discover()
    lazily = "from .. import register_model\nregister_model('late', f'{__name__}.model:Tiny')\n"
    add(place, "late", lazily, "import no_such_package_at_all\n")
    with refused(InputError, "'late'", "no_such_package_at_all", "model.py:1", fix="pip install"):
        load_model("late")
    add(place, "toy_cnn")
    with refused(InputError, place / "toy_cnn", fix="rename"):
        discover()
    shutil.rmtree(place / "toy_cnn")
    add(place, "taken", GOOD.replace("{name}", "toy_cnn"))
    with refused(InputError, "'toy_cnn'", "models.taken.model:Tiny", "models.toy_cnn.model:ToyCNN"):
        discover()


def test_commands_stop_at_a_broken_folder_and_a_place_must_be_there(sme2prof, place, monkeypatch) -> None:
    add(place, "raises", BROKEN["raises"][0])
    for words in (("models", "--json"), ("export", "toy_cnn")):
        done = sme2prof(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        says(done.stderr, place / "raises", "ValueError: not here")
    monkeypatch.setenv(VARIABLE, str(place / "nowhere"))
    with refused(InputError, VARIABLE, place / "nowhere"):
        discover()


def test_a_model_of_ones_own_has_options_and_formats(place):
    sized = GOOD.replace("Tiny)", "Tiny, options=[ModelOption('width', 4, 'features')])")
    add(place, "sized", f"from model_profiling.models.options import ModelOption\n{sized}")
    add(place, "no_int8", GOOD.replace("Tiny)", "Tiny, not_supported={'int8': 'it is tiny'})"))
    made = load_model("sized@width=7")
    assert made.name == "sized_width7" and made.model.get_eager_model().in_features == 7
    assert load_model("sized@width=4").name == "sized"
    assert discover()["no_int8"].dtypes == ("fp32", "fp16", "int8-dynamic", "int4")
    with refused(InputError, "no_int8", "int8", "it is tiny", fix="--dtype fp32 or fp16 or int8-dynamic"):
        discover()["no_int8"].check_dtype("int8")


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
    assert failed.returncode == 2
    says(failed.stderr, "your_model/model.py", "ModuleNotFoundError", "no_such_package_at_all", "line 1")
    assert failed.stderr.count("\n") == 1
