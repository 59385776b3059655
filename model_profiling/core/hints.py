"""Fixes that error messages name: commands to run, packages to install, and which ExecuTorch is meant."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from model_profiling.core.errors import SetupError

# Commands, written so that the reader can run them word for word.

DISTRIBUTION = "sme2-profiling-kit"
_CLONE = Path(__file__).resolve().parents[2]
_SCRIPTS = _CLONE / "model_profiling" / "scripts"


def pip_install(*words: str) -> str:
    """A pip command for this Python, whichever Python is first on the PATH."""
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def install_extra(extra: str) -> str:
    """A command that installs everything in the kit's `extra`; the kit itself is on no package index."""
    requirements = _requirements(extra)
    return pip_install(*requirements) if requirements else pip_install("--editable", f"{_CLONE}[{extra}]")


def _requirements(extra: str) -> list[str]:
    """The requirements of the kit's `extra`; empty if the kit is not installed."""
    from importlib import metadata  # with its email parser it would take a fifth of `--help`

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    of_extra = re.compile(rf"""(.+?) *;.*\bextra *== *["']{re.escape(extra)}["']""")
    return [match[1] for line in lines if (match := of_extra.match(line))]


def set_up() -> str:
    """A command that creates the clone's own environment, for when this Python is the system's."""
    return shlex.join(["bash", str(_SCRIPTS / "setup_repo.sh")])


def with_another_python() -> str:
    """A command that installs the kit with a Python that the reader fills in; only a clone has scripts."""
    if (_SCRIPTS / "setup_repo.sh").is_file():
        return f"{set_up()} --python PYTHON"
    return "PYTHON -m pip install 'WHEEL[executorch]', WHEEL being the kit's"


def build_runners() -> str:
    """A command that puts runners where configs of the earlier kit name them, from a clone or a wheel."""
    if (_SCRIPTS / "build_runners.sh").is_file():
        return shlex.join(["bash", str(_SCRIPTS / "build_runners.sh")])
    return shlex.join([sys.executable, "-m", "model_profiling.compat.build_runners"])


def sme2prof(*words: str) -> str:
    """A command that runs this kit's `sme2prof`: by its name, if that is first on the PATH."""
    import shutil  # with its archives it would take a part of `--help`

    on_path, own = shutil.which("sme2prof"), Path(sys.executable).with_name("sme2prof")
    ours = on_path is not None and own.is_file() and own.samefile(on_path)
    return shlex.join([*(["sme2prof"] if ours else [sys.executable, "-m", "model_profiling"]), *words])


def needed(module: str, extra: str) -> ModuleType:
    """Import and return `module` from `extra`, or raise an error with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        package = module.partition(".")[0]
        raise SetupError(f"the Python package {package} is not installed", install_extra(extra)) from problem


# `import executorch` must mean the installed wheel, found by the installer's record, never by path. A
# checkout called `executorch` in the working folder (`setup_repo.sh --from-source` puts one there) comes
# before the wheel on `sys.path`, and lacks the wheel's libraries and version.

PACKAGE = "executorch"


def wheel_folder() -> Path | None:
    """The folder of the installed wheel's package; None if there is only a checkout, or nothing."""
    from importlib.metadata import distributions

    for distribution in distributions(name=PACKAGE):
        # An editable install records where its checkout is, and none of the package's files.
        if f"{PACKAGE}/version.py," in (distribution.read_text("RECORD") or ""):
            return Path(str(distribution.locate_file(PACKAGE)))
    return None


class _WheelFinder:
    """Finds `executorch` itself; its submodules are then searched in the wheel alone."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        folder = wheel_folder() if fullname == PACKAGE else None
        if folder is None:
            return None
        spec = PathFinder.find_spec(PACKAGE, [str(folder.parent)])
        if spec is not None:
            spec.submodule_search_locations = [str(folder)]
        return spec


def import_only_the_wheel() -> None:
    """Make `import executorch` mean the installed wheel, whatever comes before it on `sys.path`."""
    if not any(isinstance(finder, _WheelFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WheelFinder())
    # If imported before the kit, it may be a namespace package, which searches all of `sys.path`.
    loaded = sys.modules.get(PACKAGE)
    if loaded is not None and getattr(loaded, "__file__", None) is None and (folder := wheel_folder()):
        loaded.__path__ = [str(folder)]
