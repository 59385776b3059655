"""What fixes name: commands to run word for word, packages of extras, the ExecuTorch that is meant."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from model_profiling.core.errors import SetupError

# Commands that fixes name, written so that they can be run word for word by whoever reads them.

DISTRIBUTION = "sme2-profiling-kit"
_CLONE = Path(__file__).resolve().parents[2]
_SCRIPTS = _CLONE / "model_profiling" / "scripts"


def pip_install(*words: str) -> str:
    """pip of this very Python, whichever is first on the PATH."""
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def install_extra(extra: str) -> str:
    """What brings everything the kit's `extra` names into this Python; the kit itself is on no index."""
    asked = _requirements(extra)
    return pip_install(*asked) if asked else pip_install("--editable", f"{_CLONE}[{extra}]")


def reinstall(package: str, extra: str) -> str:
    """What replaces an installed `package` by the one that `extra` asks for, even of the same version."""
    asked = [line for line in _requirements(extra) if re.match(rf"{package}\b", line)] or [package]
    return pip_install("--force-reinstall", "--no-deps", *asked)


def _requirements(extra: str) -> list[str]:
    """Those of the kit's `extra`; none where it is not installed."""
    try:
        asked = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    of_extra = re.compile(rf"""(.+?)\s*;.*\bextra\s*==\s*["']{re.escape(extra)}["']""")
    return [found[1] for line in asked if (found := of_extra.match(line))]


def set_up() -> str:
    """What makes an environment of its own in the clone, for a Python that is the system's."""
    return shlex.join(["bash", str(_SCRIPTS / "setup_repo.sh")])


def with_another_python() -> str:
    """What installs the kit with another Python, which the reader names; only a clone has scripts."""
    if (_SCRIPTS / "setup_repo.sh").is_file():
        return f"{set_up()} --python PYTHON"
    return "PYTHON -m pip install 'WHEEL[executorch]', WHEEL being the kit's"


def build_runners() -> str:
    """What builds runners from ExecuTorch's source, in a clone and where only the wheel is."""
    if (_SCRIPTS / "build_runners.sh").is_file():
        return shlex.join(["bash", str(_SCRIPTS / "build_runners.sh")])
    return shlex.join([sys.executable, "-m", "model_profiling.runner.source_build", "build"])


def document(name: str) -> str:
    """A page of `docs/`: in a clone its path, and where only the wheel is its address."""
    if (_CLONE / "docs" / name).is_file():
        return f"docs/{name}"
    try:
        installed = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"docs/{name} in a clone of the kit"
    addresses = dict(url.split(", ", 1) for url in installed.get_all("Project-URL") or ())
    version = installed["Version"]
    return f"{addresses['Repository']}/blob/{'HEAD' if 'dev' in version else f'v{version}'}/docs/{name}"


def python(*words: str) -> str:
    """This very Python, by the shortest name that starts it."""
    found = shutil.which("python")
    same = found is not None and Path(found).parent == Path(sys.executable).parent
    return shlex.join(["python" if same else sys.executable, *words])


def sme2prof(*words: str) -> str:
    """This kit's command, by the shortest name that starts it.

    Another environment's may be first on the PATH; it is ours if it lies beside this Python, or is what was
    started (pip puts it elsewhere in a user's or a system's installation).
    """
    on_path = shutil.which("sme2prof")
    for own in (Path(sys.executable).parent / "sme2prof", Path(sys.argv[0])):
        if on_path and own.is_file() and own.samefile(on_path):
            return shlex.join(["sme2prof", *words])
    return shlex.join([sys.executable, "-m", "model_profiling", *words])


# Packages of the kit's extras: loaded when they are asked for, and only then.


def needed(module: str, extra: str) -> ModuleType:
    """`module`, which `extra` brings; where it is not installed, an error with what installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        # reads what is installed: not for nothing

        package = module.partition(".")[0]
        raise SetupError(f"the Python package {package} is not installed", install_extra(extra)) from problem


# Which ExecuTorch is meant: the installed wheel, found by what the installer recorded, never by path.
# A checkout called `executorch` in the working folder, where `setup_repo.sh --from-source` and others put
# it, comes before the wheel on `sys.path`, and has neither the libraries of a wheel nor its version.

PACKAGE = "executorch"


def wheel_folder() -> Path | None:
    """Where the wheel's package lies; None where no wheel is installed, only a checkout or nothing."""
    from importlib.metadata import distributions

    for found in distributions(name=PACKAGE):
        # An editable install records where its checkout is, and none of the package's files.
        if f"{PACKAGE}/version.py," in (found.read_text("RECORD") or ""):
            return Path(str(found.locate_file(PACKAGE)))
    return None


class _WheelFinder(MetaPathFinder):
    """Answers for `executorch` itself; what is inside it is then looked for in the wheel alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        folder = wheel_folder() if fullname == PACKAGE else None
        if folder is None:
            return None
        start = folder / "__init__.py"
        if start.is_file():
            return spec_from_file_location(PACKAGE, start, submodule_search_locations=[str(folder)])
        spec = ModuleSpec(PACKAGE, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


def import_only_the_wheel() -> None:
    """From now on `import executorch` means the installed wheel, whatever lies on `sys.path` before it."""
    if not any(isinstance(finder, _WheelFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WheelFinder())
    # Loaded before the kit it may be a package without a file, which takes its parts from the whole path.
    loaded = sys.modules.get(PACKAGE)
    if loaded is not None and getattr(loaded, "__file__", None) is None and (folder := wheel_folder()):
        loaded.__path__ = [str(folder)]
