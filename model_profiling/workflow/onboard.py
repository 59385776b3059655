"""A folder for a new model: a working example to replace part by part, its registration, and a test."""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.errors import InputError, system_reason
from model_profiling.models import registry
from model_profiling.models.upstream import upstream_table
from model_profiling.own_commands import python, sme2prof

_TEMPLATE = Path(__file__).parent / "new_model"
_NAME, _CLASS = "new_model", "NewModel"


@dataclass(frozen=True, slots=True)
class NewModelFolder:
    """What was made, and what to do with it."""

    name: str
    folder: Path
    in_kit: bool
    """Whether the kit finds it by itself; else SME2PROF_MODELS has to name the folder it lies in."""

    @property
    def files(self) -> dict[str, str]:
        """Each file with what it is for."""
        return {
            "__init__.py": "registers the model under its name",
            "model.py": "a network that works as it stands; what to replace is marked with Replace",
            f"test_{self.name}.py": "holds the wrapper against the network, and exports it",
        }

    @property
    def shown(self) -> Path:
        """The folder as it is typed from here."""
        here = Path.cwd().resolve()
        return self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder

    @property
    def next(self) -> tuple[tuple[str, str], ...]:
        """Commands, each with what it does, in order."""
        shown, place = self.shown, self.folder.parent
        named = self.in_kit or place in registry.named_places()
        naming = (
            [] if named else [(f"export {registry.VARIABLE}={shlex.quote(str(place))}", "finds it by name")]
        )
        return (
            *naming,
            (sme2prof("onboard", self.name, "--check"), "exports it, runs it, says what is left to do"),
            (f"$EDITOR {shlex.quote(str(shown / 'model.py'))}", "make it your model, and check again"),
            (python("-m", "pytest", str(shown)), "its own test (needs pytest)"),
            (sme2prof("profile", self.name, "--dtype", "all"), "the whole answer"),
        )

    def as_dict(self) -> dict[str, object]:
        content = asdict(self) | {"folder": str(self.folder), "files": list(self.files)}
        return {"schema_version": 1, **content, "next": [command for command, _ in self.next]}


def make_model_folder(name: str, place: Path | None = None) -> NewModelFolder:
    """Write the folder of a new model called `name` into `place`, whole or not at all.

    Without a `place` it is the kit's own folder of models where the working folder lies in a clone of the
    kit, which finds it there, and else the working folder.
    """
    in_clone = _in_clone()
    place = (place or (registry.KIT if in_clone else Path.cwd())).expanduser().resolve()
    folder = place / name
    _check_name(name, place)
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is there already", "choose another name; nothing was overwritten")
    with files.no_empty_folder(place), _whole_folder(folder) as part:
        for source in sorted(_TEMPLATE.glob("*.py")):
            text = source.read_text(encoding="utf-8")
            to = part / source.name.replace(_NAME, name)
            to.write_text(text.replace(_NAME, name).replace(_CLASS, class_name(name)), encoding="utf-8")
    return NewModelFolder(name, folder, place == registry.KIT.resolve())


def find_model_folder(name: str, place: Path) -> None:
    """Let the kit find the model `name` in a folder of model folders that the user named."""
    if not (place / name / "__init__.py").is_file():
        raise InputError(f"{place} holds no model folder '{name}'", f"make it: {sme2prof('onboard', name)}")
    registry.add_place(place.expanduser().resolve())


def check_is_found(name: str) -> None:
    """Where a model of that name lies here but is not looked for, say how it is found: nothing of the working
    folder is imported unless the user names it."""
    if not name.isidentifier() or registry.choose(name) is not None:
        return
    registry.check_not_skipped(name)
    for folder in registry.searched_for(name):
        raise InputError(
            f"{folder} registers no model named '{name}'",
            f"call register_model('{name}', ...) in its __init__.py",
        )
    if (Path(name) / "__init__.py").is_file():
        raise InputError(
            f"no model is named '{name}', but there is a folder {name} here",
            f"name the place it lies in: --dir . or export {registry.VARIABLE}=$PWD",
        )


def class_name(name: str) -> str:
    """`my_model` as `MyModel`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _in_clone() -> bool:
    """Whether the working folder lies in the clone that this very code is of."""
    clone = registry.KIT.resolve().parents[1]
    return (clone / "pyproject.toml").is_file() and Path.cwd().resolve().is_relative_to(clone)


def _check_name(name: str, place: Path) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or not name.isascii():
        raise InputError(
            f"'{name}' cannot name a model", "use letters, digits and underscores, such as my_model"
        )
    own = registry.discover()
    if name in own:
        raise InputError(
            f"a model is named '{name}' already, by {own[name].reference}", "choose another name"
        )
    if name in upstream_table():
        raise InputError(f"one of ExecuTorch's models is named '{name}'", "choose another name")
    for skipped in registry.skipped_folders():
        if name in skipped.names:
            raise InputError(f"'{name}' is a model of {skipped.folder} already", "choose another name")
    if (registry.KIT / f"{name}.py").exists():
        raise InputError(f"a part of the kit is called {name}.py", "choose another name")
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found is not None and Path(found.origin or "").parent.parent != place:
            raise InputError(f"a Python package is named '{name}'", "choose another name")


@contextlib.contextmanager
def _whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden sibling to write into; it becomes `folder` only if the block succeeds."""
    files.make_folder(folder.parent)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as problem:
        raise InputError(
            f"cannot write {folder}: {system_reason(problem)}", "choose a folder you may write to (--dir)"
        ) from problem
    try:
        yield part
        part.chmod(0o755)
        part.rename(folder)
    except OSError as problem:
        raise InputError(
            f"cannot write {folder}: {system_reason(problem)}", "choose another folder (--dir)"
        ) from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)
