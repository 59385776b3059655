"""A folder for a new model: two methods to fill in, its registration, a test."""

from __future__ import annotations

import importlib.util
import keyword
import shlex
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.hints import sme2prof
from model_profiling.models import registry
from model_profiling.models.catalog import upstream_table

_TEMPLATES = {
    "__init__.py": '''\
"""Registers NAME, so that every command finds it by name."""

from model_profiling.models.registry import register_model

register_model("NAME", f"{__name__}.model:CLASS")
''',
    "model.py": '''\
"""What `sme2prof` asks a model for: the module, and inputs that stand for its real use."""

from __future__ import annotations

import torch
from torch import nn

from model_profiling.models.base import EagerModelBase


class CLASS(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        # Replace: your module. Random weights are enough for timing, but say nothing about accuracy.
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16384, 10))

    def get_example_inputs(self) -> tuple[object, ...]:
        # Replace: one real input, in the shape, dtype and range of real use.
        return (torch.rand(1, 3, 32, 32),)
''',
    "test_NAME.py": '''\
"""What must be true of the model."""

from __future__ import annotations

import torch

from model_profiling.models import load_model


def test_its_output() -> None:
    # Replace: what your model must answer, such as an output that its authors publish.
    model = load_model("NAME").model
    with torch.no_grad():
        output = model.get_eager_model().eval()(*model.get_example_inputs())
    assert output.shape == (1, 10)
''',
}


@dataclass(frozen=True, slots=True)
class NewModelFolder:
    name: str
    folder: Path
    in_kit: bool
    """Whether the kit finds it by itself; otherwise SME2PROF_MODELS must name its parent folder."""
    files: tuple[str, ...]
    next: tuple[str, ...]
    """Commands in order."""


def make_model_folder(name: str, place: Path | None = None) -> NewModelFolder:
    """Write the folder of a new model called `name` into `place`. The default is the kit's own folder of
    models if the working folder is in a clone of the kit, which finds models there, and otherwise the working
    folder."""
    clone = registry.KIT.resolve().parents[1]
    in_clone = (clone / "pyproject.toml").is_file() and Path.cwd().resolve().is_relative_to(clone)
    place = (place or (registry.KIT if in_clone else Path.cwd())).expanduser().resolve()
    folder = place / name
    _check_name(name, place)
    if folder.exists():
        raise InputError(f"{folder} already exists", "choose another name; nothing was overwritten")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    made = {file.replace("NAME", name): text for file, text in _TEMPLATES.items()}
    for file, text in made.items():
        files.write_text(folder / file, text.replace("NAME", name).replace("CLASS", cls))
    in_kit = place == registry.KIT.resolve()
    naming = f"export {registry.VARIABLE}={shlex.quote(str(place))}"
    return NewModelFolder(
        name,
        folder,
        in_kit,
        tuple(made),
        (
            *(() if in_kit or place in registry.named_places() else (naming,)),
            f"$EDITOR {shlex.quote(str(folder / 'model.py'))}",
            f"python -m pytest {shlex.quote(str(folder / f'test_{name}.py'))}",
            sme2prof("profile", name, "--dtype", "all"),
        ),
    )


def _check_name(name: str, place: Path) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or not name.isascii():
        fix = "use letters, digits and underscores, such as my_model"
        raise InputError(f"'{name}' is not a valid model name", fix)
    users = {taken: entry.reference for taken, entry in registry.discover().items()}
    users |= dict.fromkeys(upstream_table(), "a model of ExecuTorch")
    if (registry.KIT / f"{name}.py").exists():
        users[name] = f"the kit's {name}.py"
    package = importlib.util.find_spec(name)
    if package is not None and Path(package.origin or "").parent.parent != place:
        users[name] = "a Python package"
    if name in users:
        raise InputError(f"the name '{name}' is already used by {users[name]}", "choose another name")
