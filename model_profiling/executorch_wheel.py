"""Which ExecuTorch is meant: the installed wheel, found by what the installer recorded, never by path.

A checkout called `executorch` in the working folder, where `setup_repo.sh --from-source` and others put it,
comes before the wheel on `sys.path`, and has neither the libraries of a wheel nor its version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

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
